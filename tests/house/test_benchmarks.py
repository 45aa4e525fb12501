"""The command `python -m benchmarks`: every script is listed, and its main's parameters are its options."""

from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from benchmarks.__main__ import HERE, main, read, scripts


def test_every_script_is_listed_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} >= {"estimators", "planner_prior.judge", "studies.figures"}
    assert all(meaning for _, meaning in scripts())
    assert main(["nothing"]) == 2


def test_documented_benchmarks_exist() -> None:
    names = {name for name, _ in scripts()}
    pages = [*HERE.glob("*.md"), *(HERE.parent / "docs").glob("*.md")]
    called = {
        words.split()[0].rstrip("`.,:;)")
        for page in pages
        for words in page.read_text("utf-8").split("-m benchmarks ")[1:]
    }
    assert {name.partition("|")[0] for name in called} <= names


def test_parameters_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("script", "What it does.")

    def run(
        *,
        data: Path,
        mode: Literal["a", "b"],
        turns: float = 1e7,
        case: list[str] = [],  # noqa: B006
        ours: bool = False,
    ) -> None: ...

    module.main = run  # type: ignore[attr-defined]
    given = read(module, ["--data", "x", "--mode", "b", "--case", "1", "2", "--ours"])
    assert given == {"data": Path("x"), "mode": "b", "turns": 1e7, "case": ["1", "2"], "ours": True}
    with pytest.raises(SystemExit):
        read(module, ["--data", "x", "--mode", "c"])
    assert "invalid choice: 'c'" in capsys.readouterr().err
