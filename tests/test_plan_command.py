"""`fewsteps plan` as a user meets it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pilots
import pytest

from simulate.commands import add_commands


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(arguments)
    code: int = given.handler(given)
    return code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot") / "A"
    pilots.write_pilot(folder, pilots.A, tasks=30)
    return folder


def test_json_is_one_object_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", str(folder), "--budget", "1e7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 1e7


def test_table_names_the_answer_and_its_doubts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", str(folder), "--budget", "1e7", "--already", str(folder)) == 0
    shown = capsys.readouterr().out
    assert "P(best)" in shown
    assert "a ranking only" in shown
    assert "! " in shown


def test_money_axis_reads_the_price_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.toml").write_text("output = 10\nprompt = 2\ncached = 0.2\n")
    prices = str(tmp_path / "prices.toml")
    assert run("plan", str(folder), "--budget", "100", "--axis", "money", "--prices", prices, "--json") == 0
    assert json.loads(capsys.readouterr().out)["costs"]["c0"] > 0


def test_defining_the_command_imports_nothing_heavy() -> None:
    code = (
        "import argparse, sys; from simulate.commands import add_commands; "
        "add_commands(argparse.ArgumentParser().add_subparsers()); "
        "assert not {'numpy', 'pandas', 'pyarrow', 'rich', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
