"""What a reader of a plan must know before believing it: one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.plan.costs import Costs, Prices, prompts_known
from analysis.plan.handback import Gains, gains, n_missing, tasks_measured, told
from analysis.plan.pilot import LEAST_TASKS, Pilot
from analysis.plan.report import FALL_BACK
from analysis.plan.reweigh import proposed
from occupancy.record.recipe import K_text

PILOT_SHARE = 0.2
"""A pilot that takes more of the budget than this can cost more than a better K saves."""


def doubts(
    pilot: Pilot,
    gain: Gains,
    price: Costs,
    *,
    status: str,
    refused: tuple[float, ...],
    own_price: float,
    budget: float,
    prices: Prices | None,
) -> tuple[str, ...]:
    """Warnings of a plan, the gravest first."""
    return (
        *_about_status(pilot, status, own_price, budget),
        *pilot.warnings,
        *_about_values(pilot, gain),
        *_about_tokens(pilot, price, prices),
        *_about_failures(pilot, gain, price),
        *(
            f"K={K_text(K)} is refused: it needs more contexts than {pilot.pool} tasks hold, and the student "
            f"always plays a task in the same way"
            for K in refused
        ),
        "pass_at_1, its band and r are null: hand-backs rank depths, but only a model of how the student "
        "learns predicts them",
    )


def _about_status(pilot: Pilot, status: str, own_price: float, budget: float) -> Iterator[str]:
    if status != "ranked":
        yield f"`recommended` is the fall-back, not a finding: {FALL_BACK}"
    if len(pilot.clusters) < LEAST_TASKS:
        yield f"{len(pilot.clusters)} tasks in the pilot: expected at least {LEAST_TASKS} to plan from"
    if own_price > PILOT_SHARE * budget:
        yield (
            f"the pilot's own price, {own_price:,.6g}, is more than {PILOT_SHARE:.0%} of the budget of "
            f"{budget:,.6g}: it costs more than a better K can save; name it in --already if it is sunk"
        )
    if status == "no_preference":
        yield "either no depth's gain is above 0 at 99 %, or no depth can be told from the best at 90 %"


def _about_values(pilot: Pilot, gain: Gains) -> Iterator[str]:
    contexts = pilot.contexts
    if len(gain.K) == 1:
        yield (
            "the pilot has no hand-backs after a teacher turn: every K has its cost, but only K=inf a gain; "
            "hand-backs at k = 0, 1, 2, 3, 5 would add the value of depth (`fewsteps collect --pilot`)"
        )
    if gain.mean[-1] <= 0:
        yield (
            f"from the student's contexts the teacher does not beat the student (G(inf) = "
            f"{gain.mean[-1]:+.3f} ± {gain.se[-1]:.3f}): are student and teacher swapped?"
        )
    demos = pilot.demos.R[np.isfinite(pilot.demos.R)]
    if not len(demos):
        yield "the pilot has no demonstrations: pure BC has no price here, and the teacher's own J is unknown"
    elif demos.mean() < np.nanmean(pilot.rollouts.R):
        yield (
            f"the teacher's demonstrations score {demos.mean():.3f}, below the student's rollouts "
            f"({np.nanmean(pilot.rollouts.R):.3f}): are student and teacher swapped?"
        )
    if gain.base != "handback":
        naive = gains(pilot, base="parent")
        yield (
            f"no hand-backs at k=0: U_0 is that of all rollouts alive at the same turn, which errs low; the "
            f"rollouts' own reward errs high (G(inf) {gain.mean[-1]:+.3f} and {naive.mean[-1]:+.3f}); play "
            f"k = 0 too"
        )
    for K, known, wanted, measured in zip(gain.K, told(pilot), *tasks_measured(pilot), strict=True):
        if not known:
            yield (
                f"K={K_text(K)} is not ranked: the teacher needs more turns in {wanted} tasks, and only "
                f"{measured} of them have a hand-back at that depth; expected {LEAST_TASKS}, or nearly all"
            )
    missing = n_missing(pilot)
    if missing and len(gain.K) > 1:
        yield (
            f"{missing} of {len(contexts)} contexts lack a hand-back that the teacher's length calls for: "
            f"others of the same kind stand for them"
        )
    pooled = gains(pilot, base=gain.base, weights=proposed(pilot, "pooled"))
    apart = np.abs(pooled.mean - gain.mean) > np.maximum(gain.se, 1e-12)
    if apart.any():
        at = int(np.argmax(apart))
        yield (
            f"pooled and trajectory-uniform gains differ by more than one SE (K={K_text(gain.K[at])}: "
            f"{pooled.mean[at]:+.3f} and {gain.mean[at]:+.3f}): long rollouts are not like short ones; the "
            f"ranking is trajectory-uniform, as op-short draws its contexts"
        )


def _about_tokens(pilot: Pilot, price: Costs, prices: Prices | None) -> Iterator[str]:
    turns = pilot.contexts.turns
    free = int((turns.output == 0).sum())
    if free:
        yield f"{free} of {len(turns.output)} teacher turns have 0 output tokens: costs may be too low"
    if prices is not None and prices.prompt > 0 and not prompts_known(turns):
        unknown = int(np.isnan(turns.prompt).sum())
        yield (
            f"the provider did not count the prompt of {unknown} of {len(turns.output)} teacher turns: money "
            f"is of output tokens only, so short continuations look cheaper than they are"
        )
    if np.isnan(price.target).all():
        yield "target_tokens is null: the pilot has no length under the student's tokenizer"
    if np.isnan(price.sequence).all():
        yield (
            "sequence_tokens is null: it takes lengths under the student's tokenizer, of the teacher's turns "
            "and of the prompts that the student read"
        )


def _about_failures(pilot: Pilot, gain: Gains, price: Costs) -> Iterator[str]:
    rollouts = pilot.rollouts
    lost = int(np.isnan(rollouts.R).sum())
    failed = int(np.isnan(pilot.contexts.teacher).sum())
    if lost:
        yield (
            f"{lost} of {len(rollouts.R)} student rollouts are no data: the student's J is "
            f"{np.nanmean(rollouts.R):.3f} without them and {np.nan_to_num(rollouts.R).mean():.3f} with them "
            f"as failures"
        )
    if failed:
        strict = gains(pilot, failures_as_zero=True)
        at = [int(min(K, pilot.recipe.T_max)) - 1 for K in gain.K]
        best, other = (K_text(gain.K[int(np.argmax(g.mean / price.inference[at]))]) for g in (gain, strict))
        yield (
            f"{failed} of {len(pilot.contexts)} continuations are no data, their tokens are charged: taken "
            f"as failures, G(inf) is {strict.mean[-1]:+.3f} instead of {gain.mean[-1]:+.3f}, and the best K "
            f"by tokens {other} (without them {best})"
        )
