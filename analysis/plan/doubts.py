"""What a reader of a plan must know before believing it, and what to do: a sentence each, gravest first."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.plan.costs import Prices, prompts_known
from analysis.plan.handback import Gains
from analysis.plan.offers import Purchase
from analysis.plan.pilot import LEAST_TASKS, Pilot

PILOT_SHARE = 0.2
"""A pilot that takes more of the budget than this can cost more than a better recipe saves."""
MANY = 20
"""Rollouts of one task from which on a plan asks for the task pool."""
FEW_DEMOS = 10
FARTHEST = 20.0
"""Pilot costs up to which learning curves are known."""


def doubts(
    pilot: Pilot, gain: Gains, *, purchase: Purchase, own_price: float, teaches: bool, n: int
) -> tuple[str, ...]:
    """Warnings of a plan; own_price: cost of the pilot on the budget's axis; n: rollouts of each task."""
    return (
        *_about_budget(pilot, purchase, own_price),
        *_about_policies(pilot, gain, teaches),
        *_about_pool(pilot, n),
        *pilot.warnings,
        *_about_records(pilot, purchase.prices),
        *_about_handbacks(gain),
    )


def _about_budget(pilot: Pilot, purchase: Purchase, own_price: float) -> Iterator[str]:
    budget, charged = purchase.budget, own_price * purchase.charged
    if len(pilot.clusters) < LEAST_TASKS:
        yield (
            f"The pilot has {len(pilot.clusters)} tasks: collect at least {LEAST_TASKS}, errors are "
            f"clustered by task."
        )
    if charged > PILOT_SHARE * budget:
        yield (
            f"The pilot's own cost of {charged:,.6g} is {charged / budget:.0%} of the budget, and more "
            f"than {PILOT_SHARE:.0%} rarely pays: name the pilot in --already if it is sunk, or raise the "
            f"budget."
        )
    if budget > FARTHEST * own_price > 0:
        yield (
            f"The budget is {budget / own_price:,.0f} times the pilot's cost, and learning curves are known "
            f"up to {FARTHEST:g} times ({FARTHEST * own_price:,.6g}): beyond that pass@1 is taken as "
            f"constant, so compare recipes and not budgets, or collect a larger pilot."
        )


def _about_policies(pilot: Pilot, gain: Gains, teaches: bool) -> Iterator[str]:
    demos = pilot.demos.R[np.isfinite(pilot.demos.R)]
    student = float(np.nanmean(pilot.rollouts.R))
    if not teaches:
        yield (
            "The pilot does not show that the teacher beats the student at 99 %: check the names of student "
            "and teacher and the scorer, or collect more tasks, before buying anything."
        )
    if len(demos) and demos.mean() < student:
        yield (
            f"The teacher's demonstrations score {demos.mean():.3f} and the student's rollouts "
            f"{student:.3f}: check that student and teacher are not swapped."
        )
    if gain.mean[-1] <= 0:
        yield (
            f"From the student's contexts the teacher does not beat the student (G(inf) = "
            f"{gain.mean[-1]:+.3f} ± {gain.se[-1]:.3f}): check that they are not swapped."
        )
    if not len(demos):
        yield (
            "The pilot has no demonstrations: recipes that buy some (r < 1) have no price and are left out; "
            "collect with --demo-tasks 40."
        )
    elif len(demos) < FEW_DEMOS:
        yield (
            f"The teacher's pass@1 is from {len(demos)} demonstrations: collect at least {FEW_DEMOS} "
            f"(--demo-tasks)."
        )


def _about_pool(pilot: Pilot, n: int) -> Iterator[str]:
    if n > MANY and not pilot.pool_stated:
        yield (
            f"The recommendation is spread over the pilot's own {pilot.pool} tasks, {n:,} rollouts of each: "
            f"give --pool N, the number of tasks that can be collected on."
        )


def _about_records(pilot: Pilot, prices: Prices | None) -> Iterator[str]:
    rollouts, turns = pilot.rollouts, pilot.contexts.turns
    lost, failed = int(np.isnan(rollouts.R).sum()), int(np.isnan(pilot.contexts.teacher).sum())
    if lost:
        yield (
            f"{lost} of {len(rollouts.R)} student rollouts ended in an error: the student's pass@1 is "
            f"{np.nanmean(rollouts.R):.3f} without them and {np.nan_to_num(rollouts.R).mean():.3f} with them "
            f"as failures; fix the environment if they are many."
        )
    if failed:
        yield (
            f"{failed} of {len(pilot.contexts)} continuations ended in an error, and their tokens are "
            f"charged: fix the environment if they are many."
        )
    free = int((turns.output == 0).sum())
    if free:
        yield (
            f"{free} of {len(turns.output)} teacher turns have 0 output tokens, so costs may be too low: "
            f"record the provider's usage."
        )
    if prices is not None and prices.prompt > 0 and not prompts_known(turns):
        unknown = int(np.isnan(turns.prompt).sum())
        yield (
            f"The provider did not count the prompt of {unknown} of {len(turns.output)} teacher turns, so "
            f"money is of output tokens only: short continuations look cheaper than they are; record prompt "
            f"tokens."
        )


def _about_handbacks(gain: Gains) -> Iterator[str]:
    if len(gain.K) == 1:
        yield (
            "The pilot has no hand-backs, which show the value of each K: collect with --handback 0,1,2,3,5."
        )
    elif gain.base != "handback":
        yield "No hand-backs at k=0, so gains are estimated too high: collect with --handback 0,1,2,3,5."
