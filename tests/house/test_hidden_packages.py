"""A folder of the user's that is named like one of our packages is one line, not a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from occupancy.record.errors import own_version

ROOT = Path(__file__).parents[2]


def started(arguments: list[str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, run to its end."""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("folder", "start"),
    [
        ("sft", ["-m", "analysis.cli", "--help"]),
        ("simulate", ["-m", "analysis.cli", "--help"]),
        ("analysis", ["-c", "from agentloop.entry import main; raise SystemExit(main())"]),
        ("analysis", ["-m", "agentloop.entry", "--help"]),
    ],
)
def test_a_folder_that_hides_a_package_is_named(tmp_path: Path, folder: str, start: list[str]) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").touch()
    done = started(start, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(tmp_path / folder) in done.stderr
    assert f"its own package {folder!r}" in done.stderr


def test_the_version_is_that_of_the_package_and_of_a_run() -> None:
    done = started(["-m", "analysis.cli", "--version"])
    assert (done.returncode, done.stdout) == (0, f"fewsteps {own_version()}\n")


def test_a_source_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("occupancy.record.errors.installed_version", lambda package: "")
    assert own_version() == "run from its source, not installed"


def test_the_entry_is_the_command_line_as_a_module_too() -> None:
    """It printed nothing and ended with 0, as if the command had been carried out."""
    done = started(["-m", "agentloop.entry", "no-such-command"])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "no-such-command" in done.stderr
