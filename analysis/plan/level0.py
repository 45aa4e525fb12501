"""The plan with almost no assumptions: hand-back gains against exact costs, by the marginal-value rule.

It ranks depths K of op-short. It does not predict pass@1 and does not plan r: those need a model of
how the student learns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.plan.costs import AXES, Costs, Prices, costs, costs_of_contexts, demo_cost, pilot_price
from analysis.plan.doubts import PILOT_SHARE, doubts
from analysis.plan.handback import Gains, gains, told
from analysis.plan.larger import larger_by_gains
from analysis.plan.marginal import Rule, weigh
from analysis.plan.pilot import LEAST_TASKS, Flags, Floats, Pilot
from analysis.plan.report import Candidate, Plan
from analysis.plan.reweigh import other_laws, proposed
from occupancy.record.errors import InputError
from occupancy.record.recipe import Recipe, preset

FALL_BACK_K, FALL_BACK_R = 3, 0.5


@dataclass(frozen=True)
class Purchase:
    """What is to be bought, and what has been paid."""

    budget: float
    """Teacher tokens, or money on the money axis."""
    axis: str = "inference"
    prices: Prices | None = None
    charged: bool = True
    """The pilot's own price comes out of the budget."""
    already_tokens: int = 0
    """Teacher tokens of the runs whose data are sunk."""
    owned_demos: int = 0
    """Those of demonstrations, in runs other than the pilot."""
    owned_on_policy: int = 0
    """Those of continuations."""

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise InputError(f"axis {self.axis!r}: expected one of {', '.join(AXES)}")
        if not 0 < self.budget < math.inf:
            raise InputError(f"budget {self.budget!r}: expected a finite number above 0")
        if self.axis == "money" and self.prices is None:
            raise InputError("the money axis needs prices: give a table with --prices FILE.toml")


def plan_pilot(pilot: Pilot, purchase: Purchase, *, seed: int = 0) -> Plan:
    """Plan from a pilot in memory; the bootstrap over tasks is drawn with `seed`."""
    price, gain = costs(pilot, prices=purchase.prices), gains(pilot)
    own_price = pilot_price(pilot, axis=purchase.axis, prices=purchase.prices)
    left = left_to_spend(pilot, purchase)
    column = np.array([_column(K, pilot.recipe) for K in gain.K])
    bought = np.floor(left / price.axis(purchase.axis)[column])
    if purchase.budget > own_price * purchase.charged and not bought.any():
        raise InputError(
            f"the budget leaves {left:,.6g} and a context costs {price.axis(purchase.axis)[0]:,.6g} at K=1: "
            f"it buys none; give more"
        )
    supplied = bought <= supply(pilot)
    if not supplied.any():
        raise InputError(
            f"the budget buys {bought.min():,.0f} contexts, but the student always plays a task in the same "
            f"way and {pilot.pool} tasks hold about {supply(pilot):,.0f}: lower the budget or add tasks"
        )
    each = costs_of_contexts(pilot, axis=purchase.axis, prices=purchase.prices)[:, column]
    kept = supplied & told(pilot)
    rule = weigh(
        gain.values[:, kept],
        gain.weights[:, kept],
        each[:, kept],
        cluster=pilot.contexts.cluster,
        n_clusters=len(pilot.clusters),
        seed=seed,
    )
    status = _status(pilot, rule, too_dear=own_price * purchase.charged > PILOT_SHARE * purchase.budget)
    ranked = status == "ranked"
    candidates = _candidates(pilot, gain, price, rule, bought=bought, kept=kept, axis=purchase.axis)
    near = rule.not_worse if ranked else np.ones(len(candidates), bool)
    return Plan(
        status=status,
        budget=purchase.budget,
        axis=purchase.axis,
        recommended=candidates[rule.best] if ranked else _fall_back(pilot, price, left, purchase=purchase),
        fall_back=not ranked,
        gain_exists=rule.gain_exists,
        not_worse=tuple(c for c, keep in zip(candidates, near, strict=True) if keep),
        candidates=candidates,
        unit="success gained at the contexts bought, per "
        + ("unit of money" if purchase.axis == "money" else "1,000 tokens"),
        pilot={
            "episodes": pilot.n_episodes,
            "tokens": pilot.tokens,
            "ess": pilot.ess,
            "missing_mass": pilot.missing_mass,
            "price": own_price,
            "charged": purchase.charged,
            "already_tokens": purchase.already_tokens,
            "tasks": len(pilot.clusters),
            "task_spec": pilot.task_spec,
            "environment": pilot.environment,
            "student": pilot.student,
            "teacher": pilot.teacher,
            "T_max": pilot.recipe.T_max,
            "success_at": pilot.recipe.success_at,
            "contexts": len(pilot.contexts),
            "statuses": pilot.statuses,
            "evsi": larger_by_gains(
                pilot, rule, gain.K[kept.nonzero()[0][rule.best]], left=left, price=own_price
            ),
        },
        warnings=doubts(
            pilot,
            gain,
            price,
            status=status,
            refused=tuple(np.array(gain.K)[~supplied]),
            own_price=own_price * purchase.charged,
            budget=purchase.budget,
            prices=purchase.prices,
        ),
        costs=price.to_dict(),
        laws=other_laws(pilot),
    )


def left_to_spend(pilot: Pilot, purchase: Purchase) -> float:
    """The budget without the pilot's own price, where it is charged."""
    own = pilot_price(pilot, axis=purchase.axis, prices=purchase.prices) if purchase.charged else 0.0
    return max(purchase.budget - own, 0.0)


def money_of(pilot: Pilot, purchase: Purchase) -> float | None:
    """Money for one teacher token, all prices spread over the output; None without prices."""
    if purchase.prices is None:
        return None
    return pilot_price(pilot, axis="money", prices=purchase.prices) / pilot.tokens


def supply(pilot: Pilot) -> float:
    """Different contexts that the task pool holds: without end, unless the student repeats itself."""
    return float(pilot.pool * pilot.rollouts.T.mean()) if pilot.deterministic else math.inf


def _status(pilot: Pilot, rule: Rule, *, too_dear: bool) -> str:
    """`no_preference` where no gain is above 0, no depth was measured, or no depth can be excluded."""
    if len(pilot.clusters) < LEAST_TASKS or too_dear:
        return "pilot_too_small"
    told_apart = rule.gain_exists and len(rule.value) > 1 and not rule.not_worse.all()
    return "ranked" if told_apart else "no_preference"


def _candidates(
    pilot: Pilot, gain: Gains, price: Costs, rule: Rule, *, bought: Floats, kept: Flags, axis: str
) -> tuple[Candidate, ...]:
    pooled = gains(pilot, weights=proposed(pilot, "pooled")).mean
    scale = 1.0 if axis == "money" else 1000.0
    return tuple(
        _candidate(
            pilot,
            price,
            gain.K[at],
            int(bought[at]),
            p_best=float(rule.p_best[row]),
            regret=float(rule.regret[row]) * scale,
            value=float(rule.value[row]) * scale,
            value_low=float(rule.low[row]) * scale,
            value_high=float(rule.high[row]) * scale,
            gain=float(gain.mean[at]),
            gain_se=float(gain.se[at]),
            gain_pooled=float(pooled[at]),
        )
        for row, at in enumerate(np.flatnonzero(kept))
    )


def _fall_back(pilot: Pilot, price: Costs, left: float, *, purchase: Purchase) -> Candidate:
    K = min(FALL_BACK_K, pilot.recipe.T_max)
    contexts = int(FALL_BACK_R * left / price.axis(purchase.axis)[K - 1])
    each = demo_cost(pilot, axis=purchase.axis, prices=purchase.prices)
    demos = int((1 - FALL_BACK_R) * left / each.mean()) if each.sum() else 0
    return _candidate(pilot, price, K, contexts, r_tokens=FALL_BACK_R, demos=demos)


def _candidate(pilot: Pilot, price: Costs, K: float, contexts: int, **known: Any) -> Candidate:
    n = max(math.ceil(contexts / pilot.pool), 1)
    tasks = contexts // n
    contexts = n * tasks
    at = _column(K, pilot.recipe)
    recipe = preset(
        "op-short",
        K=K,
        n=n,
        teacher=pilot.teacher,
        T_max=pilot.recipe.T_max,
        success_at=pilot.recipe.success_at,
    )
    return Candidate(
        recipe=recipe.name,
        recipe_hash=recipe.hash,
        K=K,
        n=n,
        tasks=tasks,
        contexts=contexts,
        cost_inference=contexts * float(price.inference[at]),
        cost_training=contexts * float(price.training[at]),
        cost_money=None if price.money is None else contexts * float(price.money[at]),
        target_tokens=contexts * float(price.target[at]),
        sequence_tokens=contexts * float(price.sequence[at]),
        **known,
    )


def _column(K: float, recipe: Recipe) -> int:
    return int(min(K, recipe.T_max)) - 1
