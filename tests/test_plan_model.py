"""Level 1: classes, coverage, the chain, and the predictions they make."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, poisson

from simulate.plan import chain, coverage
from simulate.plan.classes import Classes, find_classes, symbols
from simulate.plan.costs import costs_of_contexts, demo_cost
from simulate.plan.hidden import fit
from simulate.plan.level0 import Purchase
from simulate.plan.level1 import options_of, plan_pilot
from simulate.plan.model import Model, build
from simulate.plan.pilot import Pilot
from simulate.plan.predict import predict
from simulate.plan.read import read_pilot


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Pilot:
    folder = tmp_path_factory.mktemp("pilot") / "A"
    pilots.write_pilot(folder, pilots.A, tasks=40, seed=5)
    return replace(read_pilot(folder), pool=500, pool_stated=True)


@pytest.fixture(scope="module")
def classes(pilot: Pilot) -> Classes:
    return find_classes(pilot)


@pytest.fixture(scope="module")
def model(pilot: Pilot, classes: Classes) -> Model:
    return build(
        pilot,
        classes,
        depths=(1, 2, 3, 5, pilot.recipe.T_max),
        each=costs_of_contexts(pilot, axis="inference", prices=None),
        demo_each=demo_cost(pilot, axis="inference", prices=None),
        draws=20,
        seed=0,
    )


@pytest.mark.parametrize(("law", "kappa", "labels"), [(3, 1.5, 40.0), (70, 0.4, 300.0), (120, 6.0, 2000.0)])
def test_mastery_is_the_chance_that_a_met_context_is_learnt(law: int, kappa: float, labels: float) -> None:
    a, b = coverage.laws()[law]
    count = np.arange(4000)
    q = beta.ppf((np.arange(400) + 0.5) / 400, 1 - a, b + a)
    exact = np.mean([(poisson.pmf(count, labels * x) * count / (count + kappa)).sum() for x in q])
    found = coverage.mastery(np.array([[labels]]), np.array([[law]]), np.array([kappa]))[0, 0]
    assert found == pytest.approx(exact, abs=0.02)


@given(st.integers(0, 140), st.floats(0.1, 20), st.floats(0, 1e5), st.floats(1, 10))
def test_more_labels_teach_no_less(law: int, kappa: float, labels: float, more: float) -> None:
    low, high = (
        coverage.mastery(np.array([[n]]), np.array([[law]]), np.array([kappa]))[0, 0]
        for n in (labels, labels * more)
    )
    assert -1e-12 <= low <= high + 1e-9 <= 1 + 1e-8


def chains() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, kernel = np.array([[0.7, 0.3]]), np.array([[[0.5, 0.2], [0.1, 0.6]]])
    return start, kernel, np.array([[0.2, 0.05]])


@pytest.mark.parametrize("failed_only", [False, True])
@pytest.mark.parametrize("law", ["uniform", "fixed"])
def test_contexts_agree_with_all_paths(law: str, failed_only: bool) -> None:
    (start,), (kernel,), (wins,) = chains()
    T_max, expected = 4, np.zeros(2)
    for T in range(1, T_max + 1):
        for path in itertools.product(range(2), repeat=T):
            p = start[path[0]] * np.prod([kernel[x, y] for x, y in itertools.pairwise(path)])
            cut = kernel[path[-1]].sum() if T_max == T else 0.0
            lost = 1 - kernel[path[-1]].sum() - wins[path[-1]] + cut
            p *= lost if failed_only else lost + wins[path[-1]]
            for x in path:
                expected[x] += p / (T if law == "uniform" else T_max)
    found = chain.contexts(*chains(), T_max=T_max, law=law, failed_only=failed_only)[0]
    assert found == pytest.approx(expected)


def test_value_is_success_within_the_horizon_from_the_start() -> None:
    start, kernel, wins = chains()
    backward = (start * chain.success_from(kernel, wins, T_max=7)).sum(1)
    assert chain.value(start, kernel, wins, T_max=7) == pytest.approx(backward)


def test_likelihood_rises(pilot: Pilot) -> None:
    symbol, _ = symbols(pilot.steps)
    path = fit(pilot, symbol, symbol, n=int(symbol.max()) + 1, sweeps=8).loglik
    assert all(b > a - 1.0 for a, b in itertools.pairwise(path))
    assert path[-1] > path[0]


def test_classes_are_of_one_kind_where_the_teacher_played(pilot: Pilot, classes: Classes) -> None:
    """On the teacher's own path a class has one number of turns left, nearly."""
    demo = pilot.steps.kind == 2
    left = (pilot.steps.length - pilot.steps.t)[demo]
    label = classes.label[demo]
    within = sum(left[label == x].var() * (label == x).sum() for x in np.unique(label)) / len(left)
    assert within < 0.5 * left.var()


def test_ends_are_pinned_to_what_was_measured(pilot: Pilot, model: Model) -> None:
    options = options_of(pilot)
    nothing = predict(model, options, budget=1e-6)
    everything = predict(model, options, budget=1e12)
    assert nothing.J[0] == pytest.approx(np.full(len(options), np.nanmean(pilot.rollouts.R)), abs=1e-3)
    whole = [at for at, option in enumerate(options) if option.recipe == "op-short"]
    assert everything.J[0][whole] == pytest.approx(np.full(len(whole), np.nanmean(pilot.demos.R)), abs=0.02)


def test_every_option_spends_the_budget(pilot: Pilot, model: Model) -> None:
    found = predict(model, options_of(pilot), budget=3e5)
    assert found.tokens == pytest.approx(np.full(len(found.tokens), 3e5), rel=1e-9)
    assert (found.trained <= found.tokens * (1 + 1e-9)).all()


def test_more_budget_never_hurts(pilot: Pilot, model: Model) -> None:
    small, large = (predict(model, options_of(pilot), budget=b).J[0] for b in (1e5, 4e5))
    assert (large > small).all()


def test_plan_predicts_with_bands(pilot: Pilot) -> None:
    found = json.loads(json.dumps(plan_pilot(pilot, Purchase(3e5, charged=False)).to_dict(), allow_nan=False))
    assert found["level"] == 1
    assert {c["recipe"] for c in found["candidates"]} >= {"pure-bc", "op-short", "op-success", "op-critical"}
    for c in found["candidates"]:
        assert 0 <= c["low"] <= c["pass_at_1"] <= c["high"] <= 1
    assert sum(c["p_best"] for c in found["candidates"]) == pytest.approx(1)
    assert found["recommended"]["r_tokens"] is not None
    assert any("ranking only" in w for w in found["warnings"])


def test_contexts_that_never_repeat_leave_the_answer_to_level_0(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "p", pilots.A, tasks=30, unique=True)
    found = plan_pilot(read_pilot(run.folder), Purchase(5e5, charged=False))
    assert found.level == 0
    assert any("no pass@1 is predicted" in w for w in found.warnings) or not found.gain_exists
