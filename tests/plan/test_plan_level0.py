"""The first plan: exact costs, hand-back gains, the marginal-value rule and its doubts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_plan import clustered_se, mean_cost, mean_gain

from analysis.plan.costs import Prices, costs
from analysis.plan.handback import gains
from analysis.plan.level0 import Purchase, plan_pilot
from analysis.plan.marginal import not_worse, weigh
from analysis.plan.pilot import Pilot, ratio
from analysis.plan.planner import plan
from analysis.plan.read import read_pilot
from analysis.plan.report import sentences
from analysis.plan.reweigh import proposed
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF

FIELDS = {
    "recipe",
    "recipe_hash",
    "K",
    "r_tokens",
    "r_tasks",
    "n",
    "tasks",
    "pass_at_1",
    "low",
    "high",
    "cost_inference",
    "cost_training",
    "cost_money",
    "target_tokens",
    "sequence_tokens",
    "p_best",
    "regret",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot") / "A"
    pilots.write_pilot(folder, pilots.A, tasks=120, seed=2)
    return folder


@pytest.fixture(scope="module")
def pilot(folder: Path) -> Pilot:
    return replace(read_pilot(folder), pool=500, pool_stated=True)


@pytest.fixture(scope="module")
def long_pilot(tmp_path_factory: pytest.TempPathFactory) -> Pilot:
    folder = tmp_path_factory.mktemp("pilot") / "B"
    pilots.write_pilot(folder, pilots.B, tasks=120, seed=3)
    return read_pilot(folder)


def permuted(pilot: Pilot, seed: int) -> Pilot:
    """The pilot with all its rewards shuffled over episodes: depth has no value any more."""
    rng = np.random.default_rng(seed)
    pool = pilot.rewards()

    def draw(values: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(values), rng.choice(pool, values.shape), np.nan)

    c = pilot.contexts
    contexts = replace(c, student=draw(c.student), teacher=draw(c.teacher), handback=draw(c.handback))
    return replace(pilot, contexts=contexts, rollouts=replace(pilot.rollouts, R=draw(pilot.rollouts.R)))


@pytest.mark.parametrize("K", [1, 2, 3, 5, 11, INF])
def test_truncation_prices_every_depth_as_a_loop_does(pilot: Pilot, K: float) -> None:
    price = costs(pilot).inference[int(min(K, pilot.recipe.T_max)) - 1]
    assert price == pytest.approx(mean_cost(pilot, K), rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_gain_is_the_mean_difference(pilot: Pilot, k: int) -> None:
    found = gains(pilot)
    assert found.mean[found.K.index(k)] == pytest.approx(mean_gain(pilot, k), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-5, 5), st.floats(0.5, 3)), min_size=5, max_size=30))
def test_ratio_error_is_clustered(rows: list[tuple[int, float, float]]) -> None:
    cluster, a, b = (list(column) for column in zip(*rows, strict=True))
    if len(set(cluster)) < 2:
        return
    _, error = ratio(np.array(a), np.array(b), cluster=np.array(cluster), n_clusters=5)
    assert error == pytest.approx(clustered_se(a, b, cluster), abs=1e-9)


def test_gain_agrees_with_the_worlds_exact_values_and_the_parents_reward_does_not(pilot: Pilot) -> None:
    found, values, toy = gains(pilot), pilots.A.values(), pilots.A
    naive = gains(pilot, base="parent")
    gain = values["teacher"] - values["student"]
    rng = np.random.default_rng(1)
    exact = []
    for _ in range(3000):
        path, _ = pilots.play(toy, rng, [("student", toy.T_max)], (0, 0), toy.T_max)
        t = int(rng.integers(1, len(path) + 1))
        exact.append(gain[(toy.T_max - t + 1, *path[t - 1]["state"])])
    assert abs(found.mean[-1] - np.mean(exact)) < 3 * found.se[-1]
    assert naive.mean[-1] < np.mean(exact) - 2 * naive.se[-1]


def test_pooled_gains_agree_on_every_base(pilot: Pilot) -> None:
    """Whether turn t exists is known before it: pooled, the parent's reward is U_0 without bias."""
    fresh, parent = (
        gains(pilot, base=base, weights=proposed(pilot, "pooled")) for base in ("handback", "parent")
    )
    assert abs(fresh.mean[-1] - parent.mean[-1]) < 3 * parent.se[-1]


def test_without_handbacks_at_0_the_rollouts_alive_stand_in(pilot: Pilot) -> None:
    c = pilot.contexts
    without = replace(pilot, contexts=replace(c, student=np.full(len(c), np.nan)))
    found, parent, fresh = gains(without), gains(without, base="parent"), gains(pilot)
    assert found.base == "alive"
    assert abs(found.mean[-1] - fresh.mean[-1]) < abs(parent.mean[-1] - fresh.mean[-1])
    assert any("no hand-backs at k=0" in w for w in plan_pilot(without, Purchase(1e7)).warnings)


def test_short_repairs_make_short_continuations_best(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(1e7))
    assert found.status == "ranked"
    assert found.recommended.K in (1, 2)
    assert INF not in {c.K for c in found.not_worse}


def test_hard_late_repairs_make_long_continuations_best(long_pilot: Pilot) -> None:
    found = plan_pilot(long_pilot, Purchase(1e7))
    assert found.status == "ranked"
    assert {c.K for c in found.not_worse} == {5, INF}


@pytest.mark.parametrize("world", ["pilot", "long_pilot"])
def test_shuffled_rewards_give_no_preference(world: str, request: pytest.FixtureRequest) -> None:
    found = [
        plan_pilot(permuted(request.getfixturevalue(world), seed), Purchase(1e7), seed=seed).status
        for seed in range(20)
    ]
    assert found.count("no_preference") >= 18, found


def test_json_has_the_fields_of_the_design(pilot: Pilot) -> None:
    found = json.loads(json.dumps(plan_pilot(pilot, Purchase(1e7)).to_dict(), allow_nan=False))
    assert {"status", "calibrated", "budget", "axis", "recommended", "not_worse", "candidates"} <= set(found)
    assert {"episodes", "tokens", "ess", "missing_mass"} <= set(found["pilot"])
    assert found["calibrated"] is False
    assert [c["K"] for c in found["candidates"]] == [1, 2, 3, 5, "inf"]
    for candidate in (found["recommended"], *found["not_worse"], *found["candidates"]):
        assert set(candidate) >= FIELDS
        assert candidate["pass_at_1"] is None
    assert any("pass_at_1" in warning for warning in found["warnings"])
    assert len(found["costs"]["inference"]) == pilots.A.T_max


def test_budget_is_what_the_contexts_cost(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(1e6, charged=False))
    for c in found.candidates:
        assert c.cost_inference is not None
        assert c.contexts is not None
        assert 0 <= 1e6 - c.cost_inference < (c.n + 1) * c.cost_inference / c.contexts
        assert c.n == math.ceil(c.contexts / 500)


@given(st.floats(1e4, 1e9), st.integers(120, 4000), st.booleans())
def test_no_candidate_costs_more_than_the_budget(
    pilot: Pilot, budget: float, pool: int, charged: bool
) -> None:
    found = plan_pilot(replace(pilot, pool=pool), Purchase(budget, charged=charged))
    for c in (found.recommended, *found.candidates):
        m = found.costs["inference"][int(min(c.K, pilot.recipe.T_max)) - 1]
        assert c.tasks <= pool
        assert c.n * c.tasks * m <= max(budget - charged * pilot.tokens, 0) * (1 + 1e-12)


def test_a_budget_that_buys_no_context_is_refused(pilot: Pilot) -> None:
    with pytest.raises(InputError, match="buys none"):
        plan_pilot(pilot, Purchase(10.0, charged=False))


def test_pilot_is_charged_unless_it_is_sunk(folder: Path) -> None:
    budget = 2.0 * read_pilot(folder).tokens
    dear = plan(folder, budget=budget)
    assert dear.status == "pilot_too_small"
    assert sentences(dear)[0].startswith("The pilot is too dear for this budget.")
    sunk = plan(folder, budget=budget, already=[folder])
    assert sunk.status == "ranked"
    assert sunk.pilot["already_tokens"] == sunk.pilot["tokens"]


def test_few_tasks_get_the_fall_back(tmp_path: Path) -> None:
    pilots.write_pilot(tmp_path / "small", pilots.A, tasks=8)
    found = plan(tmp_path / "small", budget=1e7)
    assert found.status == "pilot_too_small"
    assert found.fall_back
    assert sentences(found)[0].startswith("The pilot is too small to plan from: 8 tasks. Fall back on K = 2")


def test_the_fall_back_spends_its_share_on_contexts(folder: Path) -> None:
    found = plan(folder, budget=2.0 * read_pilot(folder).tokens)
    best, half = found.recommended, read_pilot(folder).tokens / 2
    assert found.fall_back
    assert best.r_tokens == 0.5
    m, demo = found.costs["inference"][int(best.K) - 1], found.costs["demo"]
    assert half - m * (best.n + 1) < best.n * best.tasks * m <= half
    assert half - demo < best.demos * demo <= half


def test_a_seed_below_0_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="--seed -1"):
        plan(folder, budget=1e7, seed=-1)


def test_money_counts_the_prefix_and_its_cache_once(pilot: Pilot) -> None:
    prices = Prices(output=10.0, prompt=2.0, cached=0.5, context=0.001)
    turns, price = pilot.contexts.turns, costs(pilot, prices=prices)
    first = turns.offsets[:-1]
    fresh = (turns.prompt - turns.cached)[first]
    by_hand = (turns.output[first] * 10 + fresh * 2 + turns.cached[first] * 0.5) / 1e6 + 0.001
    assert price.money is not None
    assert price.money[0] == pytest.approx(by_hand.mean())
    assert price.c0 == pytest.approx(((fresh * 2 + turns.cached[first] * 0.5) / 1e6 + 0.001).mean())
    assert plan_pilot(pilot, Purchase(50.0, axis="money", prices=prices)).recommended.cost_money is not None


def test_a_fixed_price_of_a_context_favours_depth(pilot: Pilot) -> None:
    K = [
        plan_pilot(pilot, Purchase(1e4, axis="money", prices=Prices(output=1.0, context=c))).recommended.K
        for c in (0.0, 1.0)
    ]
    assert K[0] < K[1]


def test_cut_turns_are_paid_but_train_nothing(pilot: Pilot) -> None:
    c = pilot.contexts
    cut = c.turns.offsets[1:] - 1
    whole = np.ones(len(c.turns.output), bool)
    whole[cut] = False
    price = costs(replace(pilot, contexts=replace(c, turns=replace(c.turns, trained=whole))))
    assert price.inference == pytest.approx(costs(pilot).inference)
    lost = c.turns.output[cut].sum() / len(c)
    assert price.training[-1] == pytest.approx(price.inference[-1] - lost)
    assert price.target[-1] < costs(pilot).target[-1]


def test_failed_continuations_are_doubted(pilot: Pilot) -> None:
    broken = np.arange(len(pilot.contexts)) % 10 == 0
    warnings = _warnings(pilot, teacher=np.where(broken, np.nan, pilot.contexts.teacher))
    assert any("are no data, their tokens are charged" in warning for warning in warnings)


def test_missing_handbacks_do_not_favour_short_continuations(pilot: Pilot) -> None:
    c, rng = pilot.contexts, np.random.default_rng(0)
    dropped = np.where(rng.random(len(c))[:, None] < 0.4, np.nan, c.handback)
    found = gains(replace(pilot, contexts=replace(c, handback=dropped)))
    done = c.turns.lengths <= c.k[0]
    expected = 0.0
    for kind in (done, ~done):
        have = kind & (done | np.isfinite(dropped[:, 0]))
        reward = np.where(done, c.teacher, dropped[:, 0])
        expected += kind.mean() * (reward - c.student)[have].mean()
    assert found.mean[0] == pytest.approx(expected)
    assert any("stand for them" in w for w in _warnings(pilot, handback=dropped))


def test_repeating_student_cannot_supply_more_contexts_than_its_tasks_hold(pilot: Pilot) -> None:
    found = plan_pilot(replace(pilot, deterministic=True), Purchase(1.2e6, charged=False))
    assert found.candidates
    assert min(c.K for c in found.candidates) > 1
    assert any("K=1 is refused" in warning for warning in found.warnings)


def test_comparison_with_the_best_keeps_the_best_and_drops_the_clearly_worse() -> None:
    rng = np.random.default_rng(0)
    value = np.array([1.0, 0.98, 0.2])
    kept = not_worse(value, value + 0.05 * rng.standard_normal((500, 3)))
    assert kept.tolist() == [True, True, False]


def test_same_seed_same_rule(pilot: Pilot) -> None:
    found: Callable[[], object] = lambda: plan_pilot(pilot, Purchase(1e7), seed=3).to_dict()  # noqa: E731
    assert found() == found()


def test_constant_columns_do_not_divide_by_zero() -> None:
    ones = np.ones((6, 2))
    rule = weigh(ones, ones, ones * [1, 2], cluster=np.arange(6), n_clusters=6)
    assert rule.best == 0
    assert rule.not_worse.tolist() == [True, True]


def test_a_gain_that_is_the_same_in_every_task_counts() -> None:
    gain = np.column_stack([0.1 + np.random.default_rng(0).standard_normal(30), np.ones(30)])
    one = np.ones((30, 2))
    assert weigh(gain, one, one, cluster=np.arange(30), n_clusters=30).gain_exists
    assert not weigh(gain * [1, 0], one, one, cluster=np.arange(30), n_clusters=30).gain_exists


def test_depths_that_tie_share_the_chance_to_be_best() -> None:
    one = np.ones((6, 3))
    rule = weigh(0 * one, one, one, cluster=np.arange(6), n_clusters=6)
    assert rule.p_best == pytest.approx([1 / 3, 1 / 3, 1 / 3])


def _warnings(pilot: Pilot, **changes: np.ndarray) -> tuple[str, ...]:
    contexts = replace(pilot.contexts, **changes)
    return plan_pilot(replace(pilot, contexts=contexts), Purchase(1e7)).warnings


def test_a_larger_pilot_is_valued_without_a_model_too(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(1e6, charged=False))
    more = found.pilot["evsi"]
    assert more["per_1000_tokens"] >= 0
    assert more["price_per_1000_tokens"] > 0
    nets = [size["net"] for size in more["curve"]]
    assert (more["best_extra_tasks"] > 0) == (max(nets) > 0)
    assert more["said"] in sentences(found)


def test_knowing_more_is_worth_more_of_a_larger_budget(pilot: Pilot) -> None:
    small, large = (plan_pilot(pilot, Purchase(b, charged=False)).pilot["evsi"]["evpi"] for b in (1e6, 4e6))
    assert large == pytest.approx(4 * small)
