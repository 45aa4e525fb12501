"""`fewsteps plan --what-if`: how the plan moves."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pilots
import pytest
from scipy.stats import norm

from analysis.plan import what_if
from analysis.plan.answer import sentences
from analysis.plan.commands import add_commands
from analysis.plan.costs import costs
from analysis.plan.pilot import Episodes, Pilot
from analysis.plan.planner import plan
from analysis.plan.read import read_pilot
from analysis.plan.report import Plan
from occupancy.record.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pilots.write_pilot(tmp_path_factory.mktemp("pilot") / "A", pilots.A, tasks=60, rollouts=2).folder


def ask(folder: Path, *questions: str, **more: Any) -> Plan:
    return plan(folder, budget=1e7, already=[folder], what_if=questions, **more)


def test_a_shorter_horizon_is_that_of_the_world(folder: Path) -> None:
    """pass@1 of student and teacher within N turns, exact in the toy, against the cut pilot."""
    cut, whole = read_pilot(folder, T_max=14), read_pilot(folder)
    values = pilots.A.values()
    for name, episodes in (("student", cut.rollouts), ("teacher", cut.demos)):
        exact = values[name][14, 0, 0]
        assert episodes.R.mean() == pytest.approx(exact, abs=3.5 * np.sqrt(0.25 / len(episodes.R)))
        assert episodes.T.max() == 14
    assert cut.rollouts.R.mean() < whole.rollouts.R.mean()


def test_turns_beyond_the_horizon_are_not_bought(folder: Path) -> None:
    cut, whole = read_pilot(folder, T_max=12), read_pilot(folder)
    kept = whole.contexts.t_prime <= 12
    lengths = np.minimum(whole.contexts.turns.lengths, 13 - whole.contexts.t_prime)[kept]
    assert len(cut.contexts) == kept.sum() < len(kept)
    assert (cut.contexts.turns.lengths == lengths).all()
    assert len(costs(cut).inference) == 12
    assert cut.contexts.T.max() == 12
    late = whole.contexts.turns.lengths[kept] > lengths
    assert late.any()
    assert (cut.contexts.teacher[late] == 0).all()


def test_the_recorded_horizon_changes_nothing(folder: Path) -> None:
    found = ask(folder, "T_max=24")
    (answer,) = found.what_if
    assert not answer["recommendation_moves"]
    assert not any(answer["moves"][name] for name in ("cost_inference", "cost_training"))
    assert answer["contexts_left_out"] == 0
    billed = replace(read_pilot(folder), failed_tokens=500)
    assert what_if._shorter(folder, "T_max=24", billed, T_max=24).tokens == billed.tokens


@pytest.mark.parametrize("T_max", [0, 25])
def test_what_was_not_recorded_is_refused(folder: Path, T_max: int) -> None:
    with pytest.raises(InputError, match=r"T_max=24.*collect a pilot"):
        ask(folder, f"T_max={T_max}")


def test_a_horizon_at_which_all_fail_leaves_nothing(folder: Path) -> None:
    with pytest.raises(InputError, match="T_max=6' leaves no pilot"):
        ask(folder, "T_max=6")


def test_error_of_an_evaluation_is_that_of_many() -> None:
    rng = np.random.default_rng(5)
    p, icc, tasks, attempts = 0.4, 0.25, 40, 5
    a = p * (1 - icc) / icc
    chance = rng.beta(a, a * (1 - p) / p, size=(4000, tasks))
    measured = rng.binomial(attempts, chance).mean(1) / attempts
    assert what_if.error(p, icc, tasks=tasks, attempts=attempts) == pytest.approx(measured.std(), rel=0.05)


@pytest.mark.parametrize("icc", [0.0, 0.3, 0.9])
def test_task_share_is_found(folder: Path, icc: float) -> None:
    rng, Q = np.random.default_rng(6), 3000
    a = 0.5 * (1 - max(icc, 1e-3)) / max(icc, 1e-3)
    chance = rng.beta(a, a, size=Q)
    cluster = np.repeat(np.arange(Q), rng.integers(1, 6, Q))
    R = (rng.random(len(cluster)) < chance[cluster]).astype(float)
    pilot = read_pilot(folder)
    rollouts = Episodes(cluster, np.ones(len(R), int), R)
    many = replace(pilot, rollouts=rollouts, clusters=tuple(map(str, range(Q))))
    share, measured = what_if.task_share(many)
    assert measured
    assert share == pytest.approx(icc, abs=0.04)


def test_one_rollout_a_task_leaves_the_guess(tmp_path: Path) -> None:
    pilots.write_pilot(tmp_path / "p", pilots.A, tasks=25, rollouts=1)
    assert what_if.task_share(read_pilot(tmp_path / "p")) == (0.3, False)


@pytest.fixture(scope="module")
def predicted(folder: Path) -> tuple[Pilot, Plan]:
    """A plan in which two candidates cannot be told apart, .03 from each other."""
    pilot, found = read_pilot(folder), plan(folder, budget=1e7)
    best, other = (replace(found.recommended, pass_at_1=p) for p in (0.70, 0.67))
    return pilot, replace(found, recommended=best, not_worse=(best, other))


def test_chance_of_finding_the_best_agrees_with_the_normal_law(predicted: tuple[Pilot, Plan]) -> None:
    answer = what_if.evaluation("evaluation=200x2", *predicted, tasks=200, attempts=2)
    exact = norm.cdf(0.03 / (np.sqrt(2) * answer["se"]))
    assert answer["p_finds_best"] == pytest.approx(exact, abs=0.02)
    assert answer["expected_loss"] == pytest.approx(0.03 * (1 - exact), abs=0.001)
    assert answer["se_difference_same_tasks"] < answer["se_difference"]
    pilot, found = predicted
    power = norm.cdf(answer["smallest_difference"] / answer["se_difference"] - norm.ppf(0.975))
    assert power == pytest.approx(0.8, abs=0.001)
    alone = what_if.evaluation("", pilot, replace(found, not_worse=found.not_worse[:1]), tasks=2, attempts=1)
    assert (alone["p_finds_best"], alone["expected_loss"]) == (None, None)


def test_a_larger_evaluation_shows_more(predicted: tuple[Pilot, Plan]) -> None:
    small, large = (what_if.evaluation("", *predicted, tasks=n, attempts=1) for n in (50, 5000))
    assert small["smallest_difference"] > large["smallest_difference"]
    assert small["p_finds_best"] < large["p_finds_best"]


def test_answers_are_in_json_and_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    asked = ["--what-if", "T_max=12", "--what-if", "evaluation=100x3"]
    given = parser.parse_args(["plan", str(folder), "--budget", "1e7", *asked, "--json"])
    assert given.handler(given) == 0
    told = json.loads(capsys.readouterr().out)
    said = told["what_if"]
    for name in ("pass_at_1", "cost_inference"):
        moved = said[0]["recommended"][name] - told["recommended"][name]
        assert said[0]["moves"][name] == pytest.approx(moved) != 0
    assert said[0]["moves"]["cost_money"] is None
    assert [answer["what_if"] for answer in said] == ["T_max=12", "evaluation=100x3"]
    lines = sentences(ask(folder, "T_max=12", "evaluation=100x3"))
    assert [line.split(":")[0] for line in lines if line.startswith("With ")] == [
        "With T_max=12",
        "With evaluation=100x3",
    ]


@pytest.mark.parametrize(
    "question", ["", "T_max", "T_max=x", "evaluation=100", "evaluation=1x4", "evaluation=5x0", "K=3"]
)
def test_other_questions_are_refused(folder: Path, question: str) -> None:
    what_if.check(["T_max=1", "evaluation=2x1"])
    with pytest.raises(InputError, match="--what-if"):
        ask(folder, question)
