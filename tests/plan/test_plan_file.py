"""A plan that can be carried out: its file is what `collect --plan` and `train --plan` take."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentloop.commands.collect import add_commands as add_collect
from agentloop.run.plan_file import Part, fill_collect, fill_train, read_plan
from analysis.cli import main
from analysis.plan.purchase import commands, plan_file, write_plan
from analysis.plan.report import Plan
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF, preset
from occupancy.runs import create_run, open_run


def mixed(found: Plan) -> Plan:
    """The same plan with a recipe that buys demonstrations too."""
    best = next(c for c in found.candidates if c.recipe == "op-short" and c.r_tokens == 0.5 and c.K == 3)
    return replace(found, recommended=best)


def test_a_plan_is_read_back_equal(found: Plan, folder: Path, tmp_path: Path) -> None:
    for one in (found, mixed(found)):
        file = write_plan(one, folder, tmp_path / "PLAN.toml")
        assert read_plan(file) == plan_file(one, folder)


def test_its_parts_spend_the_budget_and_are_the_recommended_recipe(found: Plan, folder: Path) -> None:
    written = plan_file(mixed(found), folder)
    best = mixed(found).recommended
    assert [part.name for part in written.parts] == ["demonstrations", "continuations"]
    assert sum(part.budget for part in written.parts) == pytest.approx(5e5 - found.pilot["price"])
    assert written.recipe(written.parts[1]).hash == best.recipe_hash
    assert written.parts[0].n * written.parts[0].tasks == pytest.approx(best.demos, abs=written.parts[0].n)


def test_collect_takes_what_is_not_given_from_the_plan(found: Plan, folder: Path, tmp_path: Path) -> None:
    file = write_plan(mixed(found), folder, tmp_path / "PLAN.toml")
    parser = argparse.ArgumentParser()
    add_collect(parser.add_subparsers())
    asked = ["collect", "--plan", str(file), "--out", "RUN"]
    given = parser.parse_args([*asked, "--part", "continuations", "--student", "vllm:PI_1"])
    fill_collect(given)
    best = mixed(found).recommended
    assert (given.env, given.student, given.teacher) == ("toy", "vllm:PI_1", "expert")
    assert (given.recipe, given.tasks) == (["op-short"], f"train:{best.tasks}")
    assert given.set == ["K=3", f"n={best.n}", "T_max=24"]
    assert given.budget == pytest.approx((5e5 - found.pilot["price"]) / 2)
    turns = [t for t in open_run(folder).read("turns").to_pylist() if t["author"] == "teacher"]
    assert given.turn_tokens == 8 * max(t["output_tokens"] for t in turns), "the budget needs a limit"
    with pytest.raises(InputError, match="name the student that was trained"):
        fill_collect(parser.parse_args([*asked, "--part", "continuations"]))
    with pytest.raises(InputError, match="expected one of demonstrations, continuations"):
        fill_collect(parser.parse_args(asked))


def test_what_a_plan_buys_is_of_tasks_that_are_paid_for_nowhere_yet(
    found: Plan, folder: Path, tmp_path: Path
) -> None:
    """It began with the first task again: the pilot's rollouts and its continuations, bought twice."""

    def asked(name: str, *more: str, **changes: Any) -> tuple[str, int]:
        made = replace(planned, **changes)
        (tmp_path / "PLAN.toml").write_text(made.to_toml())
        parser = argparse.ArgumentParser()
        add_collect(parser.add_subparsers())
        words = ["collect", "--plan", str(tmp_path / "PLAN.toml"), "--part", name, "--student", "s"]
        given = parser.parse_args([*words, "--out", "RUN", *more])
        fill_collect(given)
        return given.tasks, given.seed

    for name, info in (
        ("pilot", {"tasks": "train/medium:30-40", "seed": 5}),
        ("bc", {"tasks": "dev:900+train/medium:50-60", "seed": 5}),
        ("other", {"tasks": "train/medium:700", "seed": 6}),
    ):
        create_run(tmp_path / name, preset("pure-bc"), info)
    beside = tuple(str(tmp_path / name) for name in ("bc", "other"))
    planned = plan_file(mixed(found), folder)
    parts = tuple(replace(part, tasks=n) for part, n in zip(planned.parts, (100, 200), strict=True))
    planned = replace(
        planned,
        pilot=str(tmp_path / "pilot"),
        beside=beside,
        environment="hotpotqa",
        tasks="train/medium",
        pool=360,
        parts=parts,
    )
    assert asked("demonstrations") == ("train/medium:60-160", 5)
    assert asked("continuations") == ("train/medium:160-360", 5)
    assert asked("continuations", pool=359) == ("train/medium:200", 6), "too few are left: drawn anew"
    assert asked("continuations", environment="mine:tasks") == ("train/medium:200", 6)
    assert asked("continuations", "--tasks", "dev:3") == ("dev:3", 0)
    assert asked("continuations", "--seed", "9") == ("train/medium:200", 9)


def test_a_budget_on_another_axis_is_not_read_on_the_plans(found: Plan, folder: Path, tmp_path: Path) -> None:
    file = write_plan(found, folder, tmp_path / "PLAN.toml")
    parser = argparse.ArgumentParser()
    add_collect(parser.add_subparsers())
    asked = ["collect", "--plan", str(file), "--out", "RUN", "--student", "s", "--axis", "training"]
    given = parser.parse_args([*asked, "--budget", "500"])
    fill_collect(given)
    assert (given.axis, given.budget) == ("training", 500)
    with pytest.raises(InputError, match="--axis training with a plan whose budget is on the axis inference"):
        fill_collect(parser.parse_args(asked))


@pytest.mark.parametrize(
    ("line", "said"),
    [('environment = " "', "names no environment"), ('beside = "D_BC"', "beside='D_BC': expected")],
)
def test_a_plan_with_a_wrong_entry_is_one_line(
    found: Plan, folder: Path, tmp_path: Path, line: str, said: str
) -> None:
    file, name = write_plan(found, folder, tmp_path / "PLAN.toml"), line.partition(" ")[0]
    file.write_text(
        "\n".join(line if own.startswith(f"{name} =") else own for own in file.read_text().splitlines())
    )
    with pytest.raises(InputError, match=said):
        read_plan(file)


def test_a_plan_opens_the_environment_as_the_command_line_did(found: Plan, tmp_path: Path) -> None:
    """Its `version` is free text and opens nothing; what --env-set said is said once."""
    where = ["--env", "streets:open_streets", "--env-set", "town=here"]
    who = ["--student", "drunk", "--teacher", "expert", "--tasks", "train:4", "--pilot"]
    assert main(["collect", *where, *who, "--out", str(tmp_path / "pilot")]) == 0
    planned = plan_file(found, tmp_path / "pilot")
    assert (planned.environment, planned.env_set) == ("streets:open_streets", {"town": "here"})
    file = write_plan(found, tmp_path / "pilot", tmp_path / "PLAN.toml")
    part = read_plan(file).parts[0]
    small = ["--set", "T_max=5", "--tasks", "train:2", "--teacher", "expert", "--budget", "200"]
    asked = ["--plan", str(file), "--part", part.name, "--student", "drunk", "--out", str(tmp_path / "RUN")]
    assert main(["collect", *asked, *small]) in (0, 3)
    assert open_run(tmp_path / "RUN").info["made_with"]["env_set"] == {"town": "here"}
    changed = ["--env-set", "town=there", "--out", str(tmp_path / "OTHER")]
    assert main(["collect", *asked[:-2], *small, *changed]) in (0, 3)
    assert open_run(tmp_path / "OTHER").info["made_with"]["env_set"] == {"town": "there"}


def test_a_plan_finds_the_teachers_server_again(found: Plan, folder: Path, tmp_path: Path) -> None:
    """Episodes name a model without its address; the pilot's run.json has that."""
    pilot = tmp_path / "pilot"
    shutil.copytree(folder, pilot)
    told = json.loads((pilot / "run.json").read_text())
    told |= {"made_with": {"env": "toy", "teacher_server": "http://h:1/v1"}}
    (pilot / "run.json").write_text(json.dumps(told))
    model = replace(found, pilot=found.pilot | {"teacher": "openai:m,max_tokens=9"})
    plan = plan_file(model, pilot)
    assert plan.teacher == "openai:m@http://h:1/v1,max_tokens=9"
    assert plan.recipe(plan.parts[0]).teacher == "openai:m,max_tokens=9", "the run is of the model"
    assert (plan.student, plan.turn_tokens) == ("pi_1", None)


def test_a_teacher_whose_name_holds_its_limit_gets_no_other(
    found: Plan, folder: Path, tmp_path: Path
) -> None:
    model = replace(found, pilot=found.pilot | {"teacher": "openai:m@http://h/v1"})
    file = write_plan(model, folder, tmp_path / "PLAN.toml")
    assert "turn_tokens" not in file.read_text()
    assert read_plan(file).turn_tokens is None


def test_train_gets_the_pilots_own_traces(found: Plan, folder: Path, tmp_path: Path) -> None:
    file = write_plan(found, folder, tmp_path / "PLAN.toml")
    given = argparse.Namespace(plan=str(file), runs=["BOUGHT"])
    fill_train(given)
    own = open_run(given.runs[0])
    assert given.runs[1:] == ["BOUGHT"]
    assert own.info["cut"]["traces"] == found.recommended.pilot_traces
    again = argparse.Namespace(plan=str(file), runs=[])
    fill_train(again)
    assert again.runs == given.runs[:1]
    file.write_text(replace(read_plan(file), beside=("D_BC",)).to_toml())
    fill_train(again)
    assert again.runs == [given.runs[0], "D_BC", given.runs[0]]


def test_train_does_not_take_the_traces_of_an_earlier_plan(found: Plan, folder: Path, tmp_path: Path) -> None:
    file = write_plan(found, folder, tmp_path / "PLAN.toml")
    other = {"all": "success", "success": "all"}[found.recommended.pilot_traces]
    given = argparse.Namespace(plan=str(file), runs=[])
    fill_train(given)
    file.write_text(replace(read_plan(file), pilot_traces=other).to_toml())
    fill_train(given)
    assert open_run(given.runs[0]).info["cut"]["traces"] == other
    another = shutil.copytree(folder, tmp_path / "B")
    file.write_text(replace(read_plan(file), pilot=str(another)).to_toml())
    fill_train(given)
    assert open_run(given.runs[0]).info["cut"]["run"] == str(another)
    shutil.rmtree(given.runs[0])
    (tmp_path / "PLAN-pilot").mkdir()
    (tmp_path / "PLAN-pilot" / "notes").write_text("mine")
    with pytest.raises(InputError, match="holds something else"):
        fill_train(given)
    assert (tmp_path / "PLAN-pilot" / "notes").read_text() == "mine"


def test_a_plan_from_a_served_pilot_is_served(found: Plan, folder: Path) -> None:
    """A harness has no --env to collect in: the recipe is what the plan says, served once more."""
    from agentloop.commands.serve import add_commands as add_serve

    made = replace(plan_file(mixed(found), folder), environment="harness")
    lines = [line for line in commands("PLAN.toml", made) if " train " not in line]
    assert lines == [
        "fewsteps serve DEMONSTRATIONS --plan PLAN.toml --part demonstrations",
        "fewsteps serve CONTINUATIONS --plan PLAN.toml --part continuations --student PI_1",
    ]
    parser = argparse.ArgumentParser()
    add_serve(parser.add_subparsers())
    for line in lines:
        given = parser.parse_args(shlex.split(line)[1:])
        assert (given.out, given.env, given.env_set) == (shlex.split(line)[2], None, [])


def test_the_command_writes_it_and_says_how_to_carry_it_out(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my plan $1.toml"
    assert main(["plan", str(folder), "--budget", "5e5", "--pool", "2000", "--out", str(file)]) == 0
    lines = [
        shlex.split(line) for line in capsys.readouterr().out.splitlines() if line.startswith("fewsteps ")
    ]
    assert list(map(shlex.join, lines)) == list(commands(file, read_plan(file)))
    assert [line[1] for line in lines][-2:] == ["collect", "train"]
    assert all(("--plan", str(file)) in itertools.pairwise(line) for line in lines)
    assert main(["plan", str(folder), "--budget", "5e5", "--json", "--out", str(file)]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("budget = ", "cannot be read"),
        ("format = 2", "no plan of this version"),
        ("format = 1", "lacks the entry"),
    ],
)
def test_files_that_are_no_plans_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "PLAN.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        read_plan(tmp_path / "PLAN.toml")
    with pytest.raises(InputError, match="part of the plan: name='x': expected one of"):
        Part("x", "op-short", INF, 1, 1, 1.0)
