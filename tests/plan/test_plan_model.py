"""Level 1: classes, coverage, the chain, and the predictions they make."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import naive_plan
import numpy as np
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.plan import chain, coverage
from analysis.plan.classes import Classes, find_classes, symbols
from analysis.plan.costs import costs_of_contexts, demo_cost
from analysis.plan.filling import GROUPS, SINGLES, fill
from analysis.plan.hidden import fit
from analysis.plan.imagined_exact import values
from analysis.plan.level0 import Purchase
from analysis.plan.level1 import DEFAULT, band, options_of, plan_pilot
from analysis.plan.model import Model, build
from analysis.plan.pilot import Pilot
from analysis.plan.predict import Option, SpendingLimits, predict, world_of
from analysis.plan.read import read_pilot


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


def chains() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    start, kernel = np.array([[0.7, 0.3]]), np.array([[[0.5, 0.2], [0.1, 0.6]]])
    return start, kernel, np.array([[0.2, 0.05]])


def test_contexts_agree_with_all_paths() -> None:
    (start,), (kernel,), _ = chains()
    T_max, expected = 4, np.zeros(2)
    for T in range(1, T_max + 1):
        for path in itertools.product(range(2), repeat=T):
            p = start[path[0]] * np.prod([kernel[x, y] for x, y in itertools.pairwise(path)])
            p *= 1 - kernel[path[-1]].sum() + (kernel[path[-1]].sum() if T_max == T else 0.0)
            for x in path:
                expected[x] += p / T
    start, kernel, _ = chains()
    assert chain.contexts(start, kernel, T_max=T_max)[0] == pytest.approx(expected)


CLASSES = st.lists(
    st.tuples(st.lists(st.integers(1, 30), max_size=12), st.sampled_from(coverage.laws())),
    min_size=1,
    max_size=4,
)


@given(CLASSES, st.integers(0, 99))
def test_classes_are_filled_to_one_with_what_was_seen_first(
    classes: list[tuple[list[int], tuple[float, float]]], seed: int
) -> None:
    tasks = np.array([n for counts, _ in classes for n in counts], np.int64)
    label = np.repeat(np.arange(len(classes)), [len(counts) for counts, _ in classes])
    found = fill(tasks, label, np.array([law for _, law in classes]), np.random.default_rng(seed))
    for x, (counts, (a, b)) in enumerate(classes):
        here = found.own == x
        weight, size = found.weight[here], found.size[here]
        assert weight.sum() == pytest.approx(1)
        assert (weight > 0).all()
        assert found.seen[here].tolist() == [True] * len(counts) + [False] * (here.sum() - len(counts))
        assert (size[: len(counts)] == 1).all()
        assert (size >= 1 - 1e-9).all()
        assert here.sum() - len(counts) <= SINGLES + GROUPS
        if a < 0:
            assert size.sum() == pytest.approx(max(round(b / -a), len(counts), 1))


@given(st.lists(st.integers(1, 30), max_size=12), st.sampled_from(coverage.laws()), st.integers(0, 99))
def test_a_class_is_filled_as_the_naive_twin_does(
    tasks: list[int], law: tuple[float, float], seed: int
) -> None:
    seen, one = np.array(tasks, np.int64), np.zeros(len(tasks), np.int64)
    found = fill(seen, one, np.array([law]), np.random.default_rng(seed))
    weight, size = naive_plan.fill(seen, *law, np.random.default_rng(seed))
    assert found.weight == pytest.approx(weight / weight.sum())
    assert found.size == pytest.approx(size)


def test_nodes_are_picked_as_often_as_they_come() -> None:
    tasks, label = np.array([3, 1, 1, 7, 2]), np.array([0, 0, 0, 1, 1])
    found = fill(tasks, label, np.array([[0.25, 4.0], [-1.0, 3.0]]), np.random.default_rng(0))
    u = (np.arange(20_000) + 0.5) / 20_000
    for x in (0, 1):
        at = found.pick(np.full(len(u), x), u)
        assert (found.own[at] == x).all()
        share = np.bincount(at, minlength=len(found.own)) / len(u)
        assert share[found.own == x] == pytest.approx(found.weight[found.own == x], abs=2e-4)


def test_unseen_weight_is_the_laws_own() -> None:
    """The mean weight of what was not seen is (b + a K) / (b + n), Pitman's predictive rule."""
    tasks, (a, b) = np.array([5, 2, 1, 1, 1]), (0.25, 8.0)
    rng, one = np.random.default_rng(1), np.zeros(5, np.int64)
    unseen = [fill(tasks, one, np.array([[a, b]]), rng).weight[5:].sum() for _ in range(4000)]
    assert np.mean(unseen) == pytest.approx((b + a * 5) / (b + 10), abs=0.01)


def test_imagined_worlds_are_worlds(model: Model) -> None:
    for draw in range(5):
        world = world_of(model, draw, seed=0)
        found = world.places
        V, X = len(found.unit), len(found.first) - 1
        for law in (found.student, found.teacher):
            assert law.sum(1) == pytest.approx(np.ones(V))
            assert (law >= 0).all()
            assert (law[np.arange(law.shape[1]) >= found.used[:, None]] == 0).all()
        assert found.start.sum() == pytest.approx(1)
        assert found.within[found.first[1:] - 1] == pytest.approx(np.ones(X))
        assert ((found.to >= 0) & (found.to < V + X + 2)).all()
        assert ((found.unit >= 0) & (found.unit < len(found.kappa))).all()
        assert world.demos.sum() == model.ground.demos.sum()
        ends = np.broadcast_to([0.0, 1.0], (V, 2)).copy()
        low, high = values(found, ends, np.zeros((V, 2)), model.kernels.T_max)
        assert 0 <= low < high <= 1


def test_likelihood_rises(pilot: Pilot) -> None:
    symbol = symbols(pilot.steps)
    path = fit(pilot, np.maximum(symbol, 0), symbol, silent=np.ones(int(symbol.max()) + 1), sweeps=8).loglik
    assert all(b > a - 1.0 for a, b in itertools.pairwise(path))
    assert path[-1] > path[0]


def test_classes_are_of_one_kind_where_the_teacher_played(pilot: Pilot, classes: Classes) -> None:
    """On the teacher's own path a class has one number of turns left, nearly."""
    demo = pilot.steps.kind == 2
    left = (pilot.steps.length - pilot.steps.t)[demo]
    label = classes.label[demo]
    within = sum(left[label == x].var() * (label == x).sum() for x in np.unique(label)) / len(left)
    assert within < 0.5 * left.var()


def test_all_bought_comes_near_the_teacher(pilot: Pilot, model: Model) -> None:
    options = options_of(pilot)
    everything = predict(model, options, spending=SpendingLimits(1e9))
    whole = [at for at, option in enumerate(options) if option.recipe == "op-short" and option.r == 0.5]
    assert everything.J[:, whole].mean() == pytest.approx(np.nanmean(pilot.demos.R), abs=0.05)


def test_every_option_spends_the_budget(pilot: Pilot, model: Model) -> None:
    found = predict(model, options_of(pilot), spending=SpendingLimits(3e5))
    known = found.unspent == 0
    assert found.tokens[known] == pytest.approx(np.full(known.sum(), 3e5), rel=0.1)
    assert (found.trained <= found.tokens * (1 + 1e-9)).all()
    assert (found.contexts <= found.proposals * (1 + 1e-9)).all()


def test_owned_tokens_teach_and_are_no_purchase(pilot: Pilot, model: Model) -> None:
    options = options_of(pilot)
    alone = predict(model, options, spending=SpendingLimits(1e5))
    owned = predict(model, options, spending=SpendingLimits(1e5, owned_demos=2e5))
    assert owned.J.mean() > alone.J.mean()
    assert owned.tokens == pytest.approx(alone.tokens, rel=0.1)


def test_more_budget_does_not_hurt_on_average(pilot: Pilot, model: Model) -> None:
    small, large = (
        predict(model, options_of(pilot), spending=SpendingLimits(b)).J.mean() for b in (1e5, 4e5)
    )
    assert large > small


def test_predictions_do_not_depend_on_the_threads(
    pilot: Pilot, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(pilot)[:4]
    several = predict(model, options, spending=SpendingLimits(1e5))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    np.testing.assert_array_equal(several.J, predict(model, options, spending=SpendingLimits(1e5)).J)


def test_plan_predicts_with_bands(pilot: Pilot) -> None:
    found = json.loads(json.dumps(plan_pilot(pilot, Purchase(3e5, charged=False)).to_dict(), allow_nan=False))
    assert found["level"] == 1
    assert {c["recipe"] for c in found["candidates"]} >= {"pure-bc", "op-short", "op-success", "op-critical"}
    for c in found["candidates"]:
        assert 0 <= c["low"] <= c["pass_at_1"] <= c["high"] <= 1
    assert sum(c["p_best"] for c in found["candidates"]) == pytest.approx(1)
    assert found["recommended"]["r_tokens"] is not None
    assert any("ranking only" in w for w in found["warnings"])


@pytest.mark.parametrize("default", [DEFAULT, Option("oec", 7.0, 0.5)])
@pytest.mark.parametrize("ranked", [True, False])
def test_the_default_is_recommended_where_nothing_is_told_apart(
    pilot: Pilot, monkeypatch: pytest.MonkeyPatch, default: Option, ranked: bool
) -> None:
    monkeypatch.setattr("analysis.plan.level1.DEFAULT", default)
    if not ranked:
        monkeypatch.setattr("analysis.plan.level1.not_worse", lambda mean, _: np.ones(len(mean), bool))
    found = plan_pilot(replace(pilot, pool=10**9), Purchase(2e5, charged=False))
    best = max(found.candidates, key=lambda c: c.value or 0.0)
    compared = {Option(c.recipe, c.K, c.r_tokens or 0.0): c for c in found.candidates}
    assert found.status == ("ranked" if ranked else "no_preference")
    assert found.recommended == (best if ranked else compared.get(default, best))
    said = any("`recommended` is the default" in warning for warning in found.warnings)
    assert said == (found.recommended != best)


@given(st.floats(0, 2), st.integers(0, 1000))
def test_bands_hold_the_middle_of_the_draws_and_widen_with_the_discrepancy(wide: float, seed: int) -> None:
    J = np.random.default_rng(seed).beta(8, 2, (400, 5))
    low, high = band(J, wide, np.random.default_rng(seed))
    narrow = band(J, 0.0, np.random.default_rng(seed))
    assert narrow == pytest.approx(np.quantile(J, (0.05, 0.95), axis=0))
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    assert (low <= np.median(J, axis=0)).all()
    if wide > 1:
        assert (high - low > narrow[1] - narrow[0]).all()
