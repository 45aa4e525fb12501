"""ALFWorld installs without spaCy by one line: README, doctor and errors print it, `make install` runs it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from agentloop.commands.doctor import check_extras
from occupancy.record.errors import install_command

ROOT = Path(__file__).parents[2]


def pinned(lock: str) -> set[str]:
    lines = (ROOT / "locks" / lock).read_text("utf-8").splitlines()
    return {line for line in lines if "==" in line and not line.startswith("#")}


def test_the_lock_of_alfworld_has_the_versions_that_are_tested_and_no_spacy() -> None:
    assert pinned("alfworld.txt") <= pinned("dev.txt")
    assert not [line for line in pinned("alfworld.txt") if line.startswith("spacy")]


def test_the_readme_prints_the_line_that_errors_and_doctor_print() -> None:
    printed = install_command("alfworld").replace(f"{ROOT}/", "").replace(str(ROOT), ".")
    assert f"    {printed}" in (ROOT / "README.md").read_text("utf-8")


def test_doctor_answers_where_fewsteps_runs_without_being_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", lost)
    (check,) = check_extras()
    assert not check.good
    assert check.remedy.startswith("pip install -e ")
