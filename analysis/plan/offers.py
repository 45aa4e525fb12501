"""What a budget buys of every arm, from exact costs: contexts, demonstrations, tasks, all costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.curves.arms import Arm
from analysis.plan.costs import (
    Costs,
    Prices,
    axes_of,
    check_budget,
    costs,
    costs_of_contexts,
    demo_cost,
    pilot_price,
)
from analysis.plan.pilot import Floats, Pilot
from analysis.plan.reweigh import kept, proposed
from occupancy.record.recipe import Recipe


@dataclass(frozen=True)
class Purchase:
    """What is to be bought, and what has been paid."""

    budget: float
    """Teacher tokens, or money on the money axis."""
    axis: str = "inference"
    prices: Prices | None = None
    charged: bool = True
    """The pilot's own price is part of the budget."""
    already_tokens: int = 0
    """Teacher tokens of the runs whose data are sunk."""
    beside_tokens: int = 0
    """Those of them that are not the pilot's: every student is trained on these data too."""

    def __post_init__(self) -> None:
        check_budget(self.budget, axis=self.axis, prices=self.prices)

    def left(self, pilot: Pilot) -> float:
        """The budget without the pilot's own price, where that is charged."""
        own = pilot_price(pilot, axis=self.axis, prices=self.prices) if self.charged else 0.0
        return max(self.budget - own, 0.0)


@dataclass(frozen=True)
class Offer:
    """What a budget buys of one arm; NaN where the pilot does not say."""

    arm: Arm
    contexts: int
    """That the teacher continues."""
    proposals: int
    """Rollouts of the student: those that a filter refuses cost no teacher token."""
    demos: int
    n: int
    """Rollouts of each task; demonstrations of each task for pure BC."""
    tasks: int
    r_tasks: float
    cost_inference: float
    """C_i of what is bought."""
    cost_training: float
    """C_tr."""
    cost_money: float | None
    target_tokens: float
    sequence_tokens: float
    why_not: str = ""
    """Why it cannot be bought; empty where it can."""


@dataclass(frozen=True)
class _Prices:
    contexts: dict[str, Floats]
    """By axis: [C, T_max] of each context at K = 1 .. T_max."""
    demos: dict[str, float]
    """By axis: mean of a demonstration; NaN without any."""
    known: Costs


def offers(pilot: Pilot, purchase: Purchase, arms: Sequence[Arm]) -> list[Offer]:
    """One for each arm, in order."""
    each, shown = {}, {}
    for axis in axes_of(purchase.prices):
        each[axis] = costs_of_contexts(pilot, axis=axis, prices=purchase.prices)
        made = demo_cost(pilot, axis=axis, prices=purchase.prices)
        shown[axis] = float(made.mean()) if len(made) else math.nan
    prices = _Prices(each, shown, costs(pilot))
    return [_offer(pilot, purchase, arm, prices) for arm in arms]


def passed(pilot: Pilot, recipe: str, context: str = "all") -> float:
    """Share of proposals that the teacher continues."""
    return float(_chances(pilot, recipe, context).mean())


def proposal_tokens(pilot: Pilot, recipe: Recipe) -> float:
    """Expected C_i of a proposal, those that the teacher does not continue included.

    For pure BC that of a demonstration, or of a whole continuation where the pilot has none.
    """
    if recipe.rho == "teacher":
        known = costs(pilot)
        return known.demo if known.demo > 0 else float(known.inference[-1])
    tokens = costs_of_contexts(pilot, axis="inference", prices=None)[:, int(min(recipe.K, recipe.T_max)) - 1]
    law = "op-short" if recipe.psi == "all" else recipe.name
    return float((tokens * _chances(pilot, law, recipe.context)).mean())


def _chances(pilot: Pilot, recipe: str, context: str) -> Floats:
    """[C] probability that the teacher continues from each context of the pilot, once it is proposed."""
    weight = proposed(pilot, recipe, context)
    if recipe == "oec":
        return np.minimum(weight / pilot.recipe.T_max, 1.0)
    return (weight > 0).astype(np.float64)


def _offer(pilot: Pilot, purchase: Purchase, arm: Arm, prices: _Prices) -> Offer:
    each, shown = prices.contexts, prices.demos
    left, column = purchase.left(pilot), int(min(arm.K, pilot.recipe.T_max)) - 1
    law = (pilot, arm.recipe, arm.context)
    share, weight, used = passed(*law) if arm.r else 0.0, proposed(*law), kept(*law)
    per = dict.fromkeys(each, 0.0)
    if share > 0:
        for axis, table in each.items():
            taken = used if axis == "training" else weight
            per[axis] = float((table[:, column] * taken).sum() / weight.sum())
    price = per[purchase.axis]
    contexts = int(arm.r * left / price) if price > 0 else 0
    proposals = math.ceil(contexts / share) if share > 0 else 0
    part = (1 - arm.r) * left
    demos = int(part / shown[purchase.axis]) if part and shown[purchase.axis] > 0 else 0
    wanted = demos if arm.r == 0 else proposals
    n = max(math.ceil(wanted / pilot.pool), 1)
    tasks = math.ceil(wanted / n)
    bc_tasks = min(demos, pilot.pool) if arm.r else 0
    bought = {axis: contexts * per[axis] + (demos * shown[axis] if demos else 0.0) for axis in each}
    rows = demos * prices.known.demo_sequence if demos else 0.0
    if contexts:
        rows = contexts * (used.sum() / weight.sum()) * prices.known.sequence[column] + rows
    few = pilot.deterministic and contexts > pilot.pool * pilot.rollouts.T.mean()
    none = "no context of the pilot has mixed outcomes by two hand-backs at k = 0"
    short = f"{demos:,} demonstrations are needed, and the pool has {pilot.pool:,} tasks"
    reasons = (
        (part and not shown[purchase.axis] > 0, "the pilot has no demonstrations, so they have no price"),
        (arm.context == "mixed" and not share > 0, none),
        (arm.r and not share > 0, "no context of the pilot is of this recipe"),
        (arm.r and not used.any(), "its filter accepts nothing in the pilot"),
        (pilot.pool_stated and demos > pilot.pool, short),
        (few, "the student always plays a task in the same way, so the pool has too few contexts"),
        ((arm.r < 1 and not demos) or (arm.r and not contexts), "the budget buys none"),
    )
    return Offer(
        arm=arm,
        contexts=contexts,
        proposals=proposals,
        demos=demos,
        n=n,
        tasks=tasks,
        r_tasks=tasks / max(tasks + bc_tasks, 1) if arm.r else 0.0,
        cost_inference=bought["inference"],
        cost_training=bought["training"],
        cost_money=bought.get("money"),
        target_tokens=bought["training"] * _target_ratio(pilot),
        sequence_tokens=float(rows),
        why_not=next((reason for holds, reason in reasons if holds), ""),
    )


def _target_ratio(pilot: Pilot) -> float:
    """Student-tokenizer tokens for each teacher token that is trained on; NaN without a tokenizer."""
    turns = (pilot.contexts.turns, pilot.demo_turns)
    student, output = (
        sum(float((getattr(part, name) * part.trained).sum()) for part in turns)
        for name in ("student", "retained")
    )
    return student / output if output else math.nan
