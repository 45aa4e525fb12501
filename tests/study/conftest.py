"""A study that nothing happened to, for the tests that only read it, or damage a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.cli import main


@pytest.fixture(scope="session")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a study in the laboratory."""
    from test_study import CONFIG

    file = tmp_path_factory.mktemp("laboratory") / "tiny.toml"
    file.write_text(CONFIG.format(workshop="analysis.study.laboratory:open_workshop"), "utf-8")
    return file


@pytest.fixture(scope="session")
def whole(laboratory: Path) -> Path:
    assert main(["study", str(laboratory), "--out", str(laboratory.with_name("study"))]) == 0
    return laboratory.with_name("study")
