"""Whether a larger pilot would have been worth its price, for a plan's JSON and table.

What a task of the pilot loses is the part of its tokens that the recommended recipe would not have bought:
its traces are training data too. Draws also hold the noise of what happens to be bought, which no pilot
takes away, so the value is an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.plan.costs import per_context
from analysis.plan.evsi import LEAST_DRAWS, Value, evsi
from analysis.plan.marginal import Rule
from analysis.plan.model import Model
from analysis.plan.pilot import Floats, Pilot
from analysis.plan.predict import Option, Spending, predict
from analysis.plan.report import Plan

MORE = 0.25
"""Of the budget: the step over which the gain of a further token is measured."""
SLOPE_DRAWS = 30


def larger_pilot(
    pilot: Pilot,
    model: Model,
    options: Sequence[Option],
    J: Floats,
    plan: Plan,
    *,
    spending: Spending,
    price: float,
    seed: int,
) -> dict[str, Any]:
    """The value of more tasks beside the plan's, in pass@1; price: of the pilot, on the axis.

    J: [D, O] draws of the options, the pilot's own first. Options that are no candidates are left out.
    """
    compared = {Option(c.recipe, c.K, c.r_tokens or 0.0) for c in plan.candidates}
    chosen = plan.recommended
    best = Option(chosen.recipe, chosen.K, chosen.r_tokens or 0.0)
    lost = lost_share(pilot, best)
    found = evsi(
        J[1:, [option in compared for option in options]],
        tasks=len(pilot.clusters),
        task_price=pilot.tokens / len(pilot.clusters),
        gain_per_token=slope(model, best, spending, seed=seed) * price / pilot.tokens * lost,
        unresolved=np.log(model.kappa[1:, None]),
    )
    return found.to_dict() | {"lost_share": lost, "said": _said(found, lost, "pass@1")}


def larger_by_gains(pilot: Pilot, rule: Rule, K: float, *, left: float, price: float) -> dict[str, Any]:
    """The same without a model, in success gained at all contexts that the budget left buys.

    K: of the best depth; left, price: of the budget and of the pilot, on the axis.
    """
    if len(rule.draws) < LEAST_DRAWS:
        return {}  # resampled tasks mostly lack a depth: nothing is known of errors
    lost = lost_share(pilot, Option("op-short", K, 1.0))
    found = evsi(
        rule.draws * left,
        tasks=len(pilot.clusters),
        task_price=pilot.tokens / len(pilot.clusters),
        gain_per_token=max(float(rule.value.max()), 0.0) * price / pilot.tokens * lost,
    )
    return found.to_dict() | {"lost_share": lost, "said": _said(found, lost, "success gained at contexts")}


def _said(found: Value, lost: float, unit: str) -> str:
    more = found.best_extra_tasks
    return (
        f"A larger pilot: 1,000 teacher tokens of it are worth {found.per_1000_tokens:.2g} of {unit} at "
        f"most, and cost {found.price_per_1000_tokens:.2g}, as {lost:.0%} of them would not be bought "
        f"anyway: " + (f"up to {more} more tasks pay." if more else "no more tasks pay.")
    )


def lost_share(pilot: Pilot, option: Option) -> float:
    """Share of the pilot's tokens that the option would not have bought."""
    T_max, contexts = pilot.recipe.T_max, pilot.contexts
    wanted = np.full(len(contexts), option.recipe != "pure-bc")
    if option.recipe == "op-critical":
        wanted &= contexts.parent < pilot.recipe.success_at
    each = per_context(contexts, contexts.turns.output, T_max=T_max)[wanted].sum(0)
    kept = float(each[int(min(option.K, T_max)) - 1])
    demos = float(pilot.demo_turns.output.sum()) * (option.r < 1)
    return 1.0 - (kept + demos) / pilot.tokens


def slope(model: Model, option: Option, spending: Spending, *, seed: int) -> float:
    """Pass@1 for one more unit of the budget, by playing the option at two budgets with the same draws."""
    few = thinned(model, SLOPE_DRAWS)
    richer = replace(spending, budget=(1 + MORE) * spending.budget)
    low, high = (predict(few, [option], spending=s, seed=seed).J.mean() for s in (spending, richer))
    return max(float(high - low) / (MORE * spending.budget), 0.0)


def thinned(model: Model, draws: int) -> Model:
    """The model with its first draws only: the rest is read by the number of the draw."""
    first = slice(0, draws)
    return replace(
        model, kappa=model.kappa[first], student=model.student[first], teacher=model.teacher[first]
    )
