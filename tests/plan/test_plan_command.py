"""`fewsteps plan` as a user meets it."""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from analysis.cli import main
from analysis.plan.answer import table
from analysis.plan.commands import add_commands
from analysis.plan.planner import plan
from analysis.plan.report import Plan
from analysis.report.gather import report_of
from occupancy.record.errors import InputError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(arguments)
    code: int = given.handler(given)
    return code


def test_json_is_one_object_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", str(folder), "--budget", "1e7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 1e7


def test_the_answer_comes_first_and_says_that_it_is_a_guess(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--budget", "1e5", "--pool", "5000", "--already", str(folder), "--least-gain", "1e-6"]
    assert run("plan", str(folder), *asked) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(("Buy ", "No preference; the best guess is "))
    assert "This is a guess" in shown
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line for line in shown.splitlines() if " won " in line or " all " in line]
    assert 1 <= len([row for row in rows if row[:1] in "*~ " and "0." in row]) <= 10


def test_every_candidate_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plan", str(folder), "--budget", "1e5", "--all") == 0
    assert capsys.readouterr().out.count("op-short") > 20


def test_the_page_comes_from_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    assert run("plan", str(folder), "--budget", "1e5", "--page", str(page), "--json") == 0
    json.loads(capsys.readouterr().out)
    text = page.read_text("utf-8")
    assert '<tr class="best">' in text
    assert "://" not in text, "the page loads nothing from elsewhere"
    assert "None" not in text


@pytest.mark.parametrize("option", ["--out", "--page"])
def test_a_file_of_another_kind_is_never_replaced(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    kept = tmp_path / "train.toml"
    kept.write_text('base = "models/A"\n')
    for name in (str(kept), str(tmp_path), str(tmp_path / "none" / "x")):
        assert main(["plan", str(folder), "--budget", "1e5", option, name]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"fewsteps plan: {option} "), line
    both = str(tmp_path / "both")
    assert main(["plan", str(folder), "--budget", "1e5", "--page", both, "--out", both]) == 2
    assert "expected a file for each" in capsys.readouterr().err
    assert kept.read_text() == 'base = "models/A"\n'
    assert [file.name for file in tmp_path.iterdir()] == ["train.toml"]


def test_the_pool_is_the_environments_split_where_a_plan_would_repeat_tasks_often(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, dict[str, str], str]] = []

    def ids(environment: str, env_set: dict[str, str], split: str) -> list[str]:
        asked.append((environment, env_set, split))
        return [f"task-{q}" for q in range(4000)]

    monkeypatch.setattr("agentloop.run.collect.task_ids", ids)
    assert run("plan", str(folder), "--budget", "1e7", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["pilot"]["pool"] == 4000
    assert "--pool 4000: the tasks of the split 'train'" in err
    assert asked == [("toy", {}, "train")]
    assert run("plan", str(folder), "--budget", "1e7", "--pool", "90", "--json") == 0
    assert len(asked) == 1, "what is given is not looked up"
    told = " ".join(report_of([folder], budget=1e7).decision)
    assert "Tasks to spread the budget over: 4,000 (the split 'train')." in told, (
        "a report asks as a plan does"
    )


def test_money_axis_reads_the_price_table(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "prices.toml").write_text("output = 10\nprompt = 2\ncached = 0.2\n")
    prices = str(tmp_path / "prices.toml")
    assert run("plan", str(folder), "--budget", "100", "--axis", "money", "--prices", prices, "--json") == 0
    assert json.loads(capsys.readouterr().out)["costs"]["c0"] > 0


def shown(found: Plan) -> str:
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(table(found))
    return console.export_text()


def test_names_are_printed_as_they_are(folder: Path) -> None:
    found = plan(folder, budget=1e7)
    assert "a [bold]name[/bold] :smile:" in shown(replace(found, warnings=("a [bold]name[/bold] :smile:",)))


def test_already_may_be_given_once_for_each_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last one alone was read, so that a pilot that was paid for was charged."""
    one, two = (["--already", name] for name in (str(folder), "no/such/run"))
    for order in (one + two, two + one):
        with pytest.raises(InputError, match="no/such/run"):
            run("plan", str(folder), "--budget", "1e7", *order)
