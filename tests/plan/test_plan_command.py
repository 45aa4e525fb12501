"""`fewsteps plan` as a user meets it."""

from __future__ import annotations

import argparse
import io
import itertools
import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pilots
import pytest
from rich.console import Console

from analysis.plan.commands import add_commands
from analysis.plan.planner import plan
from analysis.plan.purchase import commands
from analysis.plan.report import Plan, table


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


def test_the_last_line_buys_the_recommendation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from agentloop.commands.arguments import read_recipe
    from occupancy.record.recipe import Recipe
    from occupancy.record.specs import settings

    found = plan(folder, budget=1e7)
    assert found.status == "ranked"
    assert run("plan", str(folder), "--budget", "1e7") == 0
    words = shlex.split(capsys.readouterr().out.splitlines()[-1])
    given = list(itertools.pairwise(words))
    changes = settings(Recipe, [value for name, value in given if name == "--set"], of="--set")
    best = found.recommended
    recipe = read_recipe(dict(given)["--recipe"], changes | {"teacher": "expert"}, T_max=7)
    assert recipe.hash == best.recipe_hash
    assert words[:4] == ["fewsteps", "collect", "--env", "toy"]
    assert dict(given)["--tasks"] == f"train:{best.tasks}"
    # Level 1: the student that is trained on the demonstrations, by the line before.
    assert (dict(given)["--student"], dict(given)["--teacher"]) == ("PI_1", "expert")
    assert found.level == 1


def test_what_a_model_recommends_is_bought_in_three_steps(folder: Path) -> None:
    """Demonstrations, the student trained on them, and its continuations, from that student."""
    found = replace(plan(folder, budget=1e7), level=1)
    best = replace(found.recommended, recipe="op-critical", tasks=300, demos=180, r_tasks=0.75)
    demos, train, bought = map(shlex.split, commands(replace(found, recommended=best)))
    pairs = [dict(itertools.pairwise(words)) for words in (demos, train, bought)]
    assert (pairs[0]["--recipe"], pairs[0]["--tasks"], pairs[0]["--out"]) == ("pure-bc", "train:100", "DEMOS")
    assert "n=2" in demos, "180 demonstrations of 100 tasks"
    assert train[:4] == ["fewsteps", "train", "PILOT", "DEMOS"]
    assert pairs[2]["--student"] == pairs[1]["--out"] == "PI_1"
    alone = commands(replace(found, recommended=replace(best, demos=0, r_tasks=1.0)))
    assert [line.split()[1] for line in alone] == ["train", "collect"]
    assert "DEMOS" not in " ".join(alone)
    (pure,) = commands(replace(found, recommended=replace(best, recipe="pure-bc")))
    assert "K=" not in pure


def shown(found: Plan) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(table(found))
    return console.export_text()


def test_names_are_printed_as_they_are(folder: Path) -> None:
    found = plan(folder, budget=1e7)
    assert "! a [bold]name[/bold] :smile:" in shown(replace(found, warnings=("a [bold]name[/bold] :smile:",)))


def test_a_pilot_that_is_too_small_marks_no_row(tmp_path: Path) -> None:
    pilots.write_pilot(tmp_path / "small", pilots.A, tasks=8)
    assert "~" not in shown(plan(tmp_path / "small", budget=1e7))
    assert commands(plan(tmp_path / "small", budget=1e7)) == ()


@pytest.mark.parametrize(
    ("budget", "title"), [(1e308, "Budget: 1e+308 (teacher tokens)"), (1e7, "10,000,000")]
)
def test_any_budget_fits_the_table(folder: Path, budget: float, title: str) -> None:
    printed = shown(plan(folder, budget=budget))
    assert title in printed
    assert max(len(line) for line in printed.splitlines() if " op-short " in line[:16]) < 120


def test_defining_the_command_imports_nothing_heavy() -> None:
    code = (
        "import argparse, sys; from analysis.plan.commands import add_commands; "
        "add_commands(argparse.ArgumentParser().add_subparsers()); "
        "assert not {'numpy', 'pandas', 'pyarrow', 'rich', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
