"""Every numeric option of every command refuses what is no number in its range: one line, at once, nothing
written."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.cli import main, parser

NONSENSE = ("nan", "inf", "-inf", "-1", "1e26", str(10**26), "", " ", "abc", "1,2", "[1]", "0x10")
SEVERAL = {("simulate", name) for name in ("--budgets", "--r", "--K", "--recipes")}
"""They take several values; `WITHIN` has them."""
TOY = ("--env", "toy_world:open_corridors", "--tasks", "2", "--out", "run")
COLLECT = ("collect", "--student", "drunk", "--teacher", "expert", *TOY)
WORLD = ("simulate", "--world", "short", "--seeds", "1", "--out", "out")
WITHIN = [
    *((COLLECT, f"--set={name}=") for name in ("K", "n", "T_max", "success_at")),
    (COLLECT, "--handback="),
    (COLLECT, "--env-set=workers="),
    (("evaluate", "--policy", "drunk", *TOY), "--env-set=workers="),
    *((WORLD, f"--{name}=") for name in ("K", "r", "budgets")),
    (("ledger", "run"), "--provider=output="),
]
"""Numbers within a text: the command, and what stands before the number."""


def options(found: argparse.ArgumentParser, *path: str) -> Iterator[tuple[str, str]]:
    """Command and option, for every option that reads its text as a number."""
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from options(inner, *path, name)
        elif action.option_strings and action.type is not None:
            yield " ".join(path), action.option_strings[0]


NUMERIC = sorted({*options(parser())} - SEVERAL)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends at once with exit code 2 and one line that names the option."""
    began = time.monotonic()
    code = main(arguments)
    taken = time.monotonic() - began
    out = capsys.readouterr()
    assert (code, out.out) == (2, ""), arguments
    assert out.err.count("\n") == 1, out.err
    assert option in out.err
    assert taken < 2, f"{taken:.1f} s: {arguments}"


def test_the_table_holds_every_command_with_numbers() -> None:
    assert len(NUMERIC) >= 55
    with_numbers = {command.split()[0] for command, _ in NUMERIC}
    assert with_numbers >= {"collect", "cut", "evaluate", "import", "occupancy", "plan", "simulate", "traces"}


@pytest.mark.parametrize(("command", "option"), NUMERIC)
def test_a_number_that_is_none_is_one_line_and_nothing_is_written(
    command: str, option: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in NONSENSE:
        refused([*command.split(), f"{option}={text}"], option, capsys)
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(("command", "before"), WITHIN)
def test_a_number_within_a_text_too(
    command: tuple[str, ...], before: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("nan", "-inf", "-1", "1e26", "abc", ""):
        refused([*command, f"{before}{text}"], "", capsys)
    assert not list(elsewhere.iterdir())
