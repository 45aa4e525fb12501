"""The plan: it spends the budget, recommends what its numbers say, and claims no more than it knows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pilots
import pytest
from test_plan_facts import permuted

from analysis.curves.acquisition import Option, next_training
from analysis.curves.arms import Arm, arms_of
from analysis.curves.curves import posterior
from analysis.curves.draws import drawn
from analysis.curves.evidence import Training
from analysis.plan.answer import sentences
from analysis.plan.costs import Prices, pilot_price
from analysis.plan.facts import facts_of
from analysis.plan.offers import Purchase, offers, passed
from analysis.plan.pilot import Pilot
from analysis.plan.planner import plan, plan_pilot
from analysis.plan.pool import with_pool
from analysis.plan.read import read_pilot
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF

FIELDS = {
    "recipe", "recipe_hash", "K", "r_tokens", "r_tasks", "n", "tasks", "pilot_traces", "pass_at_1",
    "low", "high", "cost_inference", "cost_training", "cost_money", "target_tokens", "sequence_tokens",
    "p_best", "regret",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pilots.write_pilot(tmp_path_factory.mktemp("pilot") / "A", pilots.A, tasks=60, seed=2).folder


@pytest.fixture(scope="module")
def pilot(folder: Path) -> Pilot:
    return replace(read_pilot(folder), pool=5000, pool_stated=True)


def trained(
    recipe: str, r: float, *, won: float, seed: int = 0, tokens: int = 20_000, K: float = INF
) -> Training:
    successes = (np.arange(200) < 200 * won).astype(float)
    own = round(tokens * r)
    return Training(Arm(recipe, K, r), tokens - own, own, seed, tuple(successes), (1,) * 200)


def test_json_has_the_fields_of_the_design(pilot: Pilot) -> None:
    found = json.loads(json.dumps(plan_pilot(pilot, Purchase(5e5)).to_dict(), allow_nan=False))
    top = {
        "status",
        "calibrated",
        "budget",
        "axis",
        "recommended",
        "not_worse",
        "candidates",
        "pilot",
        "warnings",
    }
    assert top <= set(found)
    assert {"episodes", "tokens", "ess", "missing_mass"} <= set(found["pilot"])
    assert found["costs"]["K"] == list(range(1, 25))
    for candidate in (found["recommended"], *found["candidates"]):
        assert set(candidate) >= FIELDS
        assert candidate["K"] == "inf" or candidate["K"] >= 1
        assert 0 <= candidate["low"] <= candidate["pass_at_1"] <= candidate["high"] <= 1


def test_the_recommendation_follows_from_the_numbers_shown(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(2e6))
    assert found.recommended.pass_at_1 == max(c.pass_at_1 for c in found.candidates)
    assert found.recommended == found.candidates[0] == found.not_worse[0]
    assert sum(c.p_best for c in found.candidates) == pytest.approx(1)
    bc = {c.recipe for c in found.not_worse}
    assert (found.status == "ranked") == ("pure-bc" not in bc)


def test_both_choices_of_pilot_traces_and_every_recipe_are_compared(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(5e5))
    assert {c.pilot_traces for c in found.candidates} == {"all", "success"}
    recipes = {"pure-bc", "op-short", "op-success", "op-critical", "oec", "op-failed"}
    assert {c.recipe for c in found.candidates} == recipes


@pytest.mark.parametrize("axis", ["inference", "training"])
def test_no_candidate_costs_more_than_the_budget_and_none_leaves_much(pilot: Pilot, axis: str) -> None:
    purchase = Purchase(2e5, axis=axis, charged=False)
    for c in plan_pilot(pilot, purchase).candidates:
        spent = {"inference": c.cost_inference, "training": c.cost_training}[axis]
        assert 0.95 * 2e5 < spent <= 2e5


def test_a_candidate_buys_of_both_of_its_parts_however_small_the_budget(pilot: Pilot) -> None:
    """A mix whose half buys no whole demonstration would be all on-policy, and leave the half unspent."""
    found = plan_pilot(pilot, Purchase(pilot.tokens + 1600))
    assert found.left_out
    for c in found.candidates:
        assert (c.demos > 0, c.contexts > 0) == (c.r_tokens < 1, c.r_tokens > 0), c
    told = sentences(replace(found, recommended=replace(found.recommended, demos=1, contexts=1)))
    assert "1 context from" in " ".join(told)
    assert "1 demonstration. " in " ".join(told)


def test_contexts_of_filtered_recipes_are_priced_by_their_own_law(pilot: Pilot) -> None:
    arms = [Arm("op-success"), Arm("op-critical"), Arm("op-failed", 2.0)]
    success, critical, failed = offers(pilot, Purchase(2e5, charged=False), arms)
    assert critical.contexts < success.contexts, "contexts of failed rollouts take longer"
    assert failed.cost_training == pytest.approx(failed.cost_inference)
    assert critical.cost_training < critical.cost_inference, "rejected continuations are paid"
    share = float((pilot.contexts.parent < 1).mean())
    assert passed(pilot, "op-critical") == pytest.approx(share)
    assert critical.proposals == pytest.approx(critical.contexts / share, abs=1)


@pytest.mark.parametrize("pool", [60, 61, 997, 10**6])
def test_tasks_and_rollouts_suffice_for_what_is_bought(pilot: Pilot, pool: int) -> None:
    for budget in (2e4, 2e5, 9e6):
        purchase = Purchase(budget, charged=False)
        for offer in offers(with_pool(pilot, pool), purchase, arms_of(pilot.recipe.T_max)):
            wanted = offer.proposals if offer.arm.r else offer.demos
            assert wanted <= offer.n * offer.tasks < wanted + offer.n
            assert offer.tasks <= pool


def test_the_pilot_is_charged_unless_it_is_sunk(folder: Path) -> None:
    charged, sunk = plan(folder, budget=2e5), plan(folder, budget=2e5, already=[folder])
    price = charged.pilot["price"]
    best = next(c for c in sunk.candidates if c.recipe == "op-short" and c.r_tokens == 1)
    same = next(c for c in charged.candidates if c.arm == best.arm)
    assert best.cost_inference - same.cost_inference == pytest.approx(price, rel=0.01)
    assert sunk.pilot["already_tokens"] == price


def test_a_pilot_costs_on_each_axis_what_is_counted_there(pilot: Pilot) -> None:
    """Half of each turn is reasoning that no trace holds, and failed calls were billed."""
    shown, taken = (
        replace(part, retained=part.output / 2) for part in (pilot.demo_turns, pilot.contexts.turns)
    )
    thinks = replace(
        pilot, demo_turns=shown, contexts=replace(pilot.contexts, turns=taken), failed_tokens=1000
    )
    assert pilot_price(thinks, axis="inference", prices=None) == pilot.tokens + 1000 == thinks.tokens
    for prices in (None, Prices(2.0, context=1.0)):
        assert pilot_price(thinks, axis="training", prices=prices) == pytest.approx(pilot.tokens / 2)
    paid = pilot_price(thinks, axis="money", prices=Prices(2.0))
    assert paid == pytest.approx(2.0 * thinks.tokens / 1e6)


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_rewards_give_no_preference(pilot: Pilot, seed: int) -> None:
    found = plan_pilot(permuted(pilot, seed), Purchase(5e5, charged=False))
    assert found.status == "no_preference"
    assert any("does not show that the teacher beats" in w for w in found.warnings)


def test_without_trainings_the_plan_is_a_guess(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(5e5))
    assert not found.calibrated
    assert any(line.startswith("This is a guess") for line in sentences(found))
    widths = [c.high - c.low for c in found.candidates]
    assert min(widths) > 0
    assert max(widths) < 0.95, "never 0 to 1"


def test_trainings_move_levels_and_narrow_bands(pilot: Pilot) -> None:
    forms = (("op-success", 1.0), ("pure-bc", 0.0))
    low, high = (
        plan_pilot(
            pilot, Purchase(5e5), [trained(name, r, won=won, seed=s) for name, r in forms for s in (0, 1)]
        )
        for won in (0.3, 0.8)
    )
    level, width = (
        [np.mean([f(c) for c in one.candidates]) for one in (plan_pilot(pilot, Purchase(5e5)), low, high)]
        for f in (lambda c: c.pass_at_1, lambda c: c.high - c.low)
    )
    assert low.calibrated
    assert level[1] < level[2]
    assert width[2] < width[0]
    assert any(line.startswith("Evidence: 4 small trainings") for line in sentences(low))


def test_trainings_that_agree_change_the_order(pilot: Pilot) -> None:
    bad, good = (
        [trained("op-success", 1.0, won=w, seed=s) for s in range(4)]
        + [trained("pure-bc", 0.0, won=v, seed=s) for s in range(4)]
        for w, v in ((0.3, 0.6), (0.6, 0.3))
    )

    def lead(made: list[Training]) -> float:
        level = {c.arm: c.pass_at_1 for c in plan_pilot(pilot, Purchase(5e5), made).candidates}
        return level[Arm("op-success")] - level[Arm("pure-bc", INF, 0.0)]

    assert lead(bad) < lead([]) < lead(good)


def test_the_next_training_is_one_that_could_change_the_choice(pilot: Pilot) -> None:
    facts, arms = facts_of(pilot), arms_of(pilot.recipe.T_max)
    options = [Option(arm, 20_000.0, 0) for arm in arms if arm.pilot_traces == "success"]
    assert next_training([], facts, arms, options, 2e5) in options
    assert next_training([], facts, arms, [], 2e5) is None


def test_the_first_trainings_are_of_the_pilot_and_after_a_purchase_contrasts(pilot: Pilot) -> None:
    facts, arms = facts_of(pilot), arms_of(pilot.recipe.T_max)
    own = [Arm("pilot", INF, 0.5, which) for which in ("all", "success")]
    options = [Option(arm, size, 0) for arm in [*own, *arms] for size in (1e4, 2e4)]
    made: list[Training] = []
    for expected in (own[1].name, "op-success r=1", "more demonstrations", own[0].name, own[1].name):
        chosen = next_training(made, facts, arms, options, 2e5)
        assert chosen is not None
        assert (chosen.arm.name, chosen.budget) == (expected, 2e4)
        made.append(replace(trained("op-success", 1.0, won=0.5), arm=chosen.arm))
    bought = len(made)
    contrasts = ("op-success r=1", "more demonstrations", "op-success r=0.5", "op-critical r=1")
    for expected in contrasts * 4:
        chosen = next_training(made, facts, arms, options, 2e5, begun=len(made) - bought)
        assert chosen is not None
        assert (chosen.arm.name, chosen.budget) == (expected, 2e4)
        made.append(replace(trained("op-success", 1.0, won=0.5), arm=chosen.arm))


def test_more_tokens_are_not_expected_to_hurt(pilot: Pilot) -> None:
    found = plan_pilot(pilot, Purchase(5e5))
    curve, bc = found.curve, max(c.pass_at_1 for c in found.candidates if c.recipe == "pure-bc")
    now = list(curve.budgets).index(pytest.approx(5e5))
    assert curve.pass_at_1[now] == pytest.approx(found.recommended.pass_at_1, abs=1e-5)
    assert curve.more_demonstrations[now] == pytest.approx(bc, abs=1e-5)
    assert list(curve.pass_at_1) == sorted(curve.pass_at_1)
    assert list(curve.budgets) == sorted(curve.budgets)
    far = plan_pilot(pilot, Purchase(5e5), least_gain=0.5).curve
    assert far.enough == curve.budgets[0], "no budget brings 50 points by 1,000 tokens"


def test_beliefs_are_draws_of_every_arm_at_every_budget(pilot: Pilot) -> None:
    facts, arms = facts_of(pilot), arms_of(pilot.recipe.T_max)
    believed = posterior([trained("op-short", 0.5, won=0.5, K=3)], facts)
    found = drawn(believed, arms, [1e4, 1e5], pilot=facts.pilot)
    assert found.logits.shape[1:] == (len(arms), 2)
    assert np.allclose(found.at(np.full(len(arms), 1e4)), 1 / (1 + np.exp(-found.logits[:, :, 0])))
    between = found.at(np.full(len(arms), np.sqrt(1e9)))
    middle = found.logits.mean(2)
    assert np.allclose(between, 1 / (1 + np.exp(-middle)))


def test_a_budget_far_beyond_the_pilot_is_named(folder: Path) -> None:
    cost = plan(folder, budget=1e6).pilot["tokens"]
    near, far = (plan(folder, budget=times * cost) for times in (19, 200))
    assert not any("taken as constant" in warning for warning in near.warnings)
    assert any("200 times the pilot's cost" in warning for warning in far.warnings)


def test_many_rollouts_of_one_task_are_named(folder: Path) -> None:
    found = plan(folder, budget=1e7)
    assert any("give --pool N" in w for w in found.warnings)
    assert not any("give --pool N" in w for w in plan(folder, budget=1e7, pool=10**6).warnings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": -1}, "at least 0"),
        ({"pool": 3}, "the pilot alone has 60"),
        ({"least_gain": 0.0}, "--least-gain 0.0"),
        ({"budget": 10.0}, "buys nothing of any recipe"),
    ],
)
def test_what_cannot_be_planned_is_refused(folder: Path, given: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(folder, **{"budget": 1e5, **given})  # type: ignore[arg-type]
