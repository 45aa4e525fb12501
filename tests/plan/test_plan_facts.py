"""What a pilot says without a model: exact costs, and gains by hand-backs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_plan import clustered_se, mean_cost, mean_gain

from analysis.plan.costs import Prices, costs
from analysis.plan.facts import facts_of, pass_at_1
from analysis.plan.handback import gains
from analysis.plan.offers import Purchase
from analysis.plan.pilot import Pilot
from analysis.plan.planner import plan_pilot
from analysis.plan.read import read_pilot
from analysis.plan.reweigh import other_laws, proposed
from occupancy.record.errors import DataError
from occupancy.record.recipe import INF
from occupancy.runs import create_run
from occupancy.statistics.clusters import clustered_ratio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pilots.write_pilot(tmp_path_factory.mktemp("pilot") / "A", pilots.A, tasks=120, seed=2).folder


@pytest.fixture(scope="module")
def pilot(folder: Path) -> Pilot:
    return replace(read_pilot(folder), pool=500, pool_stated=True)


def permuted(pilot: Pilot, seed: int) -> Pilot:
    """The pilot with all its rewards shuffled over episodes: depth has no value any more."""
    rng = np.random.default_rng(seed)
    pool = pilot.outcomes()

    def draw(values: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(values), rng.choice(pool, values.shape), np.nan)

    c = pilot.contexts
    contexts = replace(c, student=draw(c.student), teacher=draw(c.teacher), handback=draw(c.handback))
    rollouts, demos = (replace(part, R=draw(part.R)) for part in (pilot.rollouts, pilot.demos))
    return replace(pilot, contexts=contexts, rollouts=rollouts, demos=demos)


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
    _, error = clustered_ratio(a, b, cluster=cluster)
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
    assert any("No hand-backs at k=0" in w for w in plan_pilot(without, Purchase(1e7)).warnings)


def test_money_counts_the_prefix_and_its_cache_once(pilot: Pilot) -> None:
    prices = Prices(output=10.0, prompt=2.0, cached=0.5, context=0.001)
    turns, price = pilot.contexts.turns, costs(pilot, prices=prices)
    first = turns.offsets[:-1]
    fresh = (turns.prompt - turns.cached)[first]
    by_hand = (turns.output[first] * 10 + fresh * 2 + turns.cached[first] * 0.5) / 1e6 + 0.001
    assert price.money is not None
    assert price.money[0] == pytest.approx(by_hand.mean())
    assert price.c0 == pytest.approx(((fresh * 2 + turns.cached[first] * 0.5) / 1e6 + 0.001).mean())
    assert costs(pilot, prices=Prices(output=10.0)).c0 == 0
    assert plan_pilot(pilot, Purchase(50.0, axis="money", prices=prices)).recommended.cost_money is not None


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


def test_facts_are_counts_of_outcomes(pilot: Pilot) -> None:
    facts, contexts = facts_of(pilot, sunk=7.0), pilot.contexts
    won: dict[str, list[float]] = {"learner": [], "failed": [], "early": [], "late": []}
    columns = (contexts.teacher, contexts.parent, contexts.t_prime, contexts.T)
    for R, parent, t, T in zip(*(column.tolist() for column in columns), strict=True):
        for name in ("learner", "early" if 2 * t <= T else "late", *(["failed"] if parent == 0 else [])):
            won[name].append(R)
    assert {name: getattr(facts, name) for name in won} == {n: (sum(R), len(R)) for n, R in won.items()}
    assert (facts.student, facts.teacher) == tuple(
        (e.R.sum(), len(e.R)) for e in (pilot.rollouts, pilot.demos)
    )
    assert facts.turns_demo == pytest.approx(pilot.demos.T.mean())
    assert facts.turns_tail == pytest.approx(contexts.turns.lengths.mean())
    assert (facts.T_max, facts.pilot, facts.sunk) == (24, pilot.tokens, 7)


def test_handbacks_are_counted_as_often_as_they_were_played(tmp_path: Path) -> None:
    pilot = read_pilot(pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=12, replicates=3).folder)
    facts, contexts = facts_of(pilot), pilot.contexts
    for k, said in ((0, facts.handback0), (1, facts.handback1), (5, facts.handback5)):
        assert said is not None
        assert said[1] == 3 * (contexts.turns.lengths > k).sum()
    assert facts.handback0 is not None
    assert facts.handback0[0] == pytest.approx(3 * contexts.student.sum())


def test_all_that_a_pilot_says_of_rewards_is_of_success(tmp_path: Path) -> None:
    """G(K), hand-backs and every other fact: rewards below the threshold are failures."""
    run = pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=24, seed=2)
    plain = read_pilot(run.folder)
    recipe = replace(run.recipe, success_at=0.8)
    partly = create_run(tmp_path / "partly", recipe, {**run.info, "recipe_hash": recipe.hash})
    rows = {name: run.read(name).to_pylist() for name in ("episodes", "turns", "proposals")}
    for at, row in enumerate(rows["episodes"]):
        row["R"] = (0.8, 0.95)[at % 2] if row["R"] else (0.1, 0.79)[at % 2]
    partly.commit(rows)
    pilot = read_pilot(partly.folder)
    assert facts_of(pilot) == facts_of(plain)
    assert gains(pilot).mean.tolist() == gains(plain).mean.tolist()
    assert other_laws(pilot) == other_laws(plain)
    assert pass_at_1(pilot.demos) == pass_at_1(plain.demos)
    never = create_run(tmp_path / "never", run.recipe, run.info)
    never.commit(rows)
    with pytest.raises(DataError, match="episodes fail, as success is a reward of 1 or more"):
        read_pilot(never.folder)
