"""`fewsteps plan --design`: how large a pilot to buy before anything is bought."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.policies.by_name import open_environments
from analysis.cli import main
from analysis.plan.command_lines import capitals, collecting
from analysis.plan.commands import add_commands
from analysis.plan.costs import Prices
from analysis.plan.design import ADVISED, TARGET_SE, Design, design, gain_variance
from analysis.plan.design_answer import sentences
from analysis.plan.doubts import PILOT_SHARE
from analysis.plan.guesses import Guesses, from_run
from analysis.plan.handback import gains
from analysis.plan.pilot import LEAST_TASKS
from analysis.plan.read import read_pilot
from occupancy.record.errors import InputError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given_ = parser.parse_args(["plan", "--design", *arguments])
    code: int = given_.handler(given_)
    return code


def test_a_large_budget_buys_both_errors_and_no_more() -> None:
    found = design(budget=1e8)
    assert found.status == "designed"
    assert max(found.size.se_J, found.size.se_G) == pytest.approx(TARGET_SE)
    assert found.size.tasks == 100  # p (1 - p) / SE^2 at p = .5
    assert found.size.share < PILOT_SHARE


@given(st.floats(10, 1e8), st.floats(1, 1e3), st.floats(1, 40), st.floats(0, 1), st.integers(1, 300))
def test_the_share_holds_and_the_smallest_budget_is_the_edge(
    budget: float, tokens: float, turns: float, p: float, pool: int
) -> None:
    guesses = Guesses(turn_tokens=tokens, turns=turns, student_pass=p)
    found = design(budget=budget, guesses=guesses, pool=pool)
    if found.status == "designed":
        assert found.size.share <= PILOT_SHARE
        assert LEAST_TASKS <= found.size.tasks <= pool
        assert budget >= found.smallest_budget * (1 - 1e-9)
    else:
        assert pool < LEAST_TASKS or budget < found.smallest_budget
        assert found.reason
        assert not found.command
        assert found.to_dict()["fall_back"]
    if pool >= LEAST_TASKS:
        assert design(budget=1.001 * found.smallest_budget, guesses=guesses, pool=pool).status == "designed"


def test_few_tasks_are_played_more_often() -> None:
    found = design(budget=1e8, pool=50)
    assert (found.size.tasks, found.size.continuations) == (50, 200)
    assert found.size.se_J < TARGET_SE < design(budget=1e8, pool=20).size.se_J  # ICC .3: 20 never reach it
    # 112 contexts on 80 tasks have the error, so each task is played twice.
    assert design(budget=1e8, pool=80).size.continuations == 160
    assert "n=4" in found.command


def test_more_replicates_leave_less_noise() -> None:
    assert gain_variance(0.5, 1) > gain_variance(0.5, 4) > 0.25 * 0.25
    two, eight = (design(budget=1e6, replicates=M) for M in (2, 8))
    assert two.sizes[0].se_G > eight.sizes[0].se_G
    assert two.sizes[0].price == eight.sizes[0].price  # the student's tokens are free


def test_money_counts_prompts_and_contexts() -> None:
    plain = design(budget=1e3, axis="money", prices=Prices(output=10))
    whole = design(budget=1e3, axis="money", prices=Prices(output=10, prompt=2, context=0.5))
    turns = whole.size.tokens / 150
    assert plain.size.price == pytest.approx(plain.size.tokens * 1e-5)
    assert whole.size.price == pytest.approx(turns * (150 * 10 + 2000 * 2) / 1e6 + whole.size.tasks / 2)
    assert (plain.replicates, whole.replicates) == (4, 2)


def test_a_long_teacher_gets_deeper_hand_backs_within_the_horizon() -> None:
    assert design(budget=1e8, guesses=Guesses(turns=30)).handback == (0, 1, 2, 3, 5, 8, 13, 21)
    assert design(budget=1e8, guesses=Guesses(turns=30, T_max=5)).handback == (0, 1, 2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot") / "A"
    pilots.write_pilot(folder, pilots.A, tasks=120, rollouts=1, replicates=4)
    return folder


def test_a_run_replaces_guesses_and_what_it_says_comes_true(folder: Path) -> None:
    """Price and errors of a design with 120 contexts, against those of a pilot that has them."""
    guesses, names = from_run(folder, Guesses())
    pilot = read_pilot(folder)
    found = design(budget=1e8, guesses=guesses, run=names)
    of_120 = design(budget=1e8, guesses=guesses, pool=120).sizes
    (size,) = [size for size in of_120 if size.continuations == 100]
    scale = np.sqrt(100 / 120)
    gain = gains(pilot)
    assert size.se_G == pytest.approx(gain.se.mean() / scale, rel=0.35)
    R = pilot.rollouts.R
    assert size.se_J == pytest.approx(R.std() / 10, rel=0.02)
    assert size.se_teacher == pytest.approx(pilot.demos.R.std() / np.sqrt(size.demos))
    per_context = pilot.contexts.turns.output.sum() / 120
    per_demo = pilot.demo_turns.output.sum() / 60
    assert size.tokens == pytest.approx(100 * per_context + 40 * per_demo, rel=0.03)
    assert {at["source"] for at in found.guesses.plain().values()} == {f"measured in {folder}", "default"}


def test_what_is_given_wins_over_a_run(folder: Path) -> None:
    guesses, _ = from_run(folder, Guesses(turns=3.0, sources={"turns": "given"}))
    assert guesses.turns == 3.0
    assert guesses.plain()["turns"]["source"] == "given"


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--budget", "1e6", "--student-pass", "0.3", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == "designed"
    assert said["assumptions"]["student_pass"] == {"value": 0.3, "source": "given"}
    assert said["assumptions"]["continuation_turns"]["source"] == "turns (1 - student_pass / 2)"
    assert {"tasks", "rollouts", "continuations", "demos", "handback", "replicates"} <= set(said["design"])
    assert set(said["expected"]) == {"se_J", "se_teacher", "se_G"}
    assert said["sizes"][0]["se_J"] > said["sizes"][-1]["se_J"]


def settings_of(command: str) -> Any:
    """The command line as `fewsteps collect` would take it."""
    from agentloop.commands.arguments import read_recipe, turns
    from agentloop.commands.collect import add_commands as add_collect
    from agentloop.run.settings import Settings
    from occupancy.record.recipe import Recipe
    from occupancy.record.specs import settings

    parser = argparse.ArgumentParser()
    add_collect(parser.add_subparsers())
    given_ = parser.parse_args(shlex.split(command)[1:])
    changes = settings(Recipe, given_.set, of="--set") | {"K": "inf", "teacher": given_.teacher}
    recipe = read_recipe(given_.recipe[0], changes, T_max=24)
    return given_, Settings(
        recipe=recipe,
        student=given_.student,
        teacher=given_.teacher,
        tasks=given_.tasks,
        pilot=given_.pilot,
        handback=turns("--handback", given_.handback),
        replicates=given_.replicates,
        demo_tasks=given_.demo_tasks,
    )


def test_the_last_line_collects_the_design(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(folder), "--budget", "300000") == 0
    shown = capsys.readouterr().out
    asked, settings = settings_of(shown.splitlines()[-1])
    guesses, names = from_run(folder, Guesses())
    found = design(budget=300_000, guesses=guesses, run=names)
    assert re.findall(r"^ *\* +(\d+) ", shown, re.MULTILINE) == [str(found.size.tasks)]
    assert settings.pilot
    assert (settings.handback, settings.replicates) == (found.handback, found.replicates)
    assert (settings.tasks, settings.demo_tasks) == (f"train:{found.size.tasks}", found.size.demos)
    assert (settings.student, settings.teacher, asked.env) == ("pi_1", "expert", "toy")
    assert asked.budget == PILOT_SHARE * 300_000
    assert "Assumed: " in shown


def test_too_small_names_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--budget", "10000") == 0
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "Buy no pilot" in shown
    assert "Fall back on" in shown
    assert "A pilot is cost-effective from a budget of" in shown
    assert "fewsteps collect" not in shown


def imported(folder: Path, *, rewards: bool) -> Path:
    """A run of chat records, without token usage."""
    lines = []
    for task in range(24):
        turns = [{"role": "user", "content": f"task {task}"}, {"role": "assistant", "content": "two words"}]
        record = {"messages": turns, "task": str(task), "model": ("small", "big")[task % 2]}
        lines.append(json.dumps(record | ({"R": float(task % 2)} if rewards else {})))
    (folder / "chat.jsonl").write_text("\n".join(lines) + "\n")
    authors = ["--author-of", "small=student", "--author-of", "big=teacher", "--task", "task"]
    authors += ["--reward", "R"] if rewards else []
    assert main(["import", str(folder / "chat.jsonl"), *authors, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_a_run_without_rewards_or_usage_says_so_and_its_command_has_blanks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = imported(tmp_path, rewards=False)
    hint = capsys.readouterr().out.replace("\n", " ")
    assert "--tasks SPLIT:N" in hint
    guesses, _ = from_run(folder, Guesses())
    assert guesses.student_pass == Guesses().student_pass
    assert guesses.sources["teacher_pass"] == f"default: {folder} has no rewards"
    assert design(budget=3e5, guesses=guesses).size.se_J > 0
    assert run(str(folder), "--budget", "300000") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Buy a pilot first: ")
    assert "(counted in words, as the run records no token usage" in " ".join(shown.split())
    assert "beyond it" not in shown
    assert "Fill in the words in capitals. ENV: " in shown
    command = shown.splitlines()[-1]
    assert "--env ENV " in command
    assert "--student STUDENT --teacher TEACHER --tasks SPLIT:" in command
    assert main(["plan", str(folder), "--budget", "300000"]) == 2
    assert "--env ENV --student STUDENT --teacher TEACHER --tasks SPLIT:N" in capsys.readouterr().err


def test_a_measured_rate_of_none_or_all_is_moved_inwards(tmp_path: Path) -> None:
    guesses, _ = from_run(imported(tmp_path, rewards=True), Guesses())
    assert (guesses.student_pass, guesses.teacher_pass) == pytest.approx((0.5 / 13, 12.5 / 13))
    assert guesses.sources["student_pass"].startswith("0 of 12 in ")


@pytest.mark.parametrize("option", [("--page", "x.html"), ("--out", "x.toml"), ("--all",)])
def test_what_only_a_plan_writes_is_refused(option: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=f"{option[0]} with --design: a design makes no plan"):
        run("--budget", "300000", *option)


def test_a_pilot_below_the_advised_size_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--budget", "300000") == 0
    assert f"{ADVISED} are advised" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--budget", "nan"),
        ("--budget", "1e6", "--axis", "money"),
        ("--budget", "1e6", "--student-pass", "1.5"),
        ("--budget", "1e6", "--turns", "0"),
        ("--budget", "1e6", "--pool", "0"),
        ("--budget", "1e6", "--replicates", "0"),
    ],
)
def test_impossible_guesses_are_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises((InputError, SystemExit), match=r"expected|give|2"):
        run(*arguments)


def test_guesses_belong_to_a_design(folder: Path) -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    for words in (["plan", "--budget", "1"], ["plan", str(folder), "--budget", "1", "--icc", "0.1"]):
        asked = parser.parse_args(words)
        with pytest.raises(InputError, match="--design"):
            asked.handler(asked)


def test_a_design_is_plain_data() -> None:
    found = design(budget=1e6)
    assert isinstance(found, Design)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["axis"] == "inference"


def test_the_command_for_a_teacher_that_is_a_function_can_be_run(tmp_path: Path) -> None:
    """A budget needs a bound on a turn, which the name of a model holds and that of a function does not."""
    names = {
        "environment": "toy_world:open_corridors",
        "student": "drunk",
        "teacher": "expert",
        "tasks": "train",
    }
    guesses = Guesses(turn_tokens=10.0, T_max=12)
    command = shlex.split(design(budget=200_000, guesses=guesses, run=names).command)
    command[command.index("--tasks") + 1] = "4"  # of the toy world, whose tasks have no split
    command[command.index("PILOT")] = str(tmp_path / "pilot")
    assert main(command[1:]) in (0, 3)
    for teacher in ("openai:m@http://h/v1", ""):
        assert "--turn-tokens" not in design(budget=200_000, run=names | {"teacher": teacher}).command


def test_a_printed_command_names_models_with_their_servers_and_a_harness_by_its_command() -> None:
    """It named a model without its server, and --env harness, and neither can be opened."""
    at = {"student_server": "http://here:1/v1", "env": "mine:Games", "env_set": {"limit": "5"}}
    run = {"student": "openai:small,max_tokens=9", "teacher": "expert", "tasks": "train:60", "made_with": at}
    words = collecting(run, tasks=30)
    assert shlex.join(words) == (
        "fewsteps collect --env mine:Games --env-set=limit=5 "
        "--student openai:small@http://here:1/v1,max_tokens=9 "
        "--teacher expert --tasks train:30 --out PILOT"
    )
    ours = run | {"made_with": {"env": "alfworld"}}
    assert "train:60-90" in collecting(ours, tasks=30), "the tasks that were played are paid for"
    assert "train:30" in collecting(ours | {"seed": 1}, tasks=30)
    served = collecting(run | {"tasks": "harness", "made_with": {**at, "env": "harness"}}, tasks=30)
    assert served[:3] == ["fewsteps", "serve", "PILOT"]
    assert served[-2:] == ["--tasks", "30"]
    with pytest.raises(InputError, match="`fewsteps serve RUN` collects them"):
        open_environments("harness")


def test_every_word_in_capitals_of_a_plan_is_explained() -> None:
    (told,) = capitals("fewsteps train --plan p.toml DEMONSTRATIONS --base PI_0 --preset PRESET --out PI_1")
    assert all(f" {word}: " in told for word in ("PI_0", "PI_1", "PRESET"))
    assert not list(capitals("fewsteps plan RUN"))


def test_guessed_turns_are_not_more_than_the_horizon() -> None:
    found = design(budget=3e5, guesses=Guesses(T_max=2))
    assert found.guesses.plain()["turns"] == {"value": 2, "source": "default, cut at T_max"}


def test_a_budget_far_beyond_the_pilot_is_said_before_the_pilot_is_bought() -> None:
    """The plan from that pilot says so, too late."""
    few, far = (sentences(design(budget=budget)) for budget in (1e6, 2e7))
    assert not [line for line in few if "A plan from this pilot" in line]
    assert far[1].startswith("A plan from this pilot is for about 3,450,000 of the 20,000,000: ")
    assert far[1].endswith("or buy a pilot of about 1,000,000 teacher tokens.")
