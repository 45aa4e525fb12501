"""From a run folder, and small trainings on cuts of it, to a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.arms import DEPTHS, Arm, arms_of
from analysis.curves.curves import posterior
from analysis.curves.draws import Draws, band, drawn, not_worse, p_best, regret
from analysis.curves.evidence import Training, distinguishable
from analysis.plan.already import paid_for
from analysis.plan.costs import Prices, costs, pilot_price
from analysis.plan.doubts import MANY, PILOT_SHARE, doubts
from analysis.plan.facts import accepted, facts_of, pass_at_1
from analysis.plan.handback import Gains, gains
from analysis.plan.offers import Offer, Purchase, offers
from analysis.plan.pilot import LEAST_TASKS, Floats, Pilot
from analysis.plan.pool import split_pool, with_pool
from analysis.plan.read import read_pilot
from analysis.plan.report import Candidate, Curve, Plan
from analysis.plan.reweigh import other_laws
from analysis.plan.trainer import Bench, Effort, Progress, kept_of, train_more
from analysis.plan.what_if import answers, check
from occupancy.record.errors import InputError
from occupancy.record.recipe import K_text
from occupancy.runs import open_run

STEPS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets of the curve, in shares of the one that is left."""
LEAST_GAIN = 0.001
"""Of pass@1 by 1,000 further tokens: the default of what is worth buying."""
APART = 0.05
"""p-value below which trainings show that arms differ."""
GAIN_Z = 2.6
"""Standard errors above 0 that some measured gain must have, five depths compared at once: 99 %."""


def plan(
    folder: str | Path,
    *,
    budget: float,
    axis: str = "inference",
    already: Sequence[str | Path] = (),
    prices: Prices | None = None,
    pool: int | None = None,
    seed: int = 0,
    what_if: Sequence[str] = (),
    mixed: bool = False,
    bench: Bench | None = None,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    least_gain: float = LEAST_GAIN,
    progress: Progress = lambda line: None,
) -> Plan:
    """What a budget should buy, from a pilot: candidates with pass@1, 90 % bands and costs.

    Args:
        folder: the pilot, as `fewsteps collect --pilot` writes it.
        budget: teacher tokens (C_i), accepted ones on the training axis, money on the money axis.
        axis: inference, training or money.
        already: run folders whose data are sunk, as D_BC is: every student is trained on them too. Where
            `folder` is one of them, its price is not charged.
        prices: prices of a token, for the money axis.
        pool: tasks that the budget can be spread over. None: those of the pilot or, where these would be
            repeated more than MANY times, of its split, if its environment can be opened here.
        seed: of the draws from the posterior.
        mixed: compare buying at contexts with mixed outcomes alone, too; without it they are compared where
            trainings of them are read.
        what_if: questions that are answered beside it; see `analysis.plan.what_if`.
        bench: where small trainings on cuts of the pilot are made; None: those that the pilot's folder has
            kept are read, of whatever trainer.
        effort: how many trainings.
        least_gain: of pass@1, by 1,000 further tokens; names the budget beyond which they bring less.
        progress: told one line for each training, and how many kept ones are read.

    Raises:
        InputError: what is asked makes no sense, or a run of `already` cannot be trained on with the pilot.
        DataError: the folder is no pilot, or a training's rewards are no evidence.
        RunError: the trainer failed; trainings made before are kept.

    Example:
        >>> found = plan("analysis/pilot", budget=100_000, pool=3553)
        >>> frame = found.to_pandas()[["recipe", "K", "r_tokens", "pass_at_1", "low", "high"]]
    """
    if seed < 0:
        raise InputError(f"--seed {seed}: expected a whole number of at least 0")
    if not least_gain > 0:
        raise InputError(f"--least-gain {least_gain}: expected pass@1 above 0, such as 0.001")
    check(what_if)
    paid = paid_for(folder, already)
    beside = [run for run in paid if run != Path(folder).resolve()]
    purchase = Purchase(
        budget,
        axis=axis,
        prices=prices,
        charged=len(beside) == len(paid),
        already_tokens=sum(paid.values()),
        beside_tokens=sum(paid[run] for run in beside),
    )
    pilot = read_pilot(folder)
    pool_from = "the pilot's own; another number is given with --pool"
    if pool is not None:
        pilot, pool_from = with_pool(pilot, pool), "as given"
    if bench is None:
        trained = kept_of(open_run(folder), progress=progress)
    else:
        bench = replace(bench, beside=tuple(beside))
        trained = measured(pilot, purchase, bench, effort, mixed=mixed, progress=progress)
    if not beside:
        # Students are compared with those that were measured: what these were trained on, the final one is.
        sunk = max((training.sunk_tokens for training in trained), default=0)
        purchase = replace(purchase, beside_tokens=int(sunk))
    again = partial(plan_pilot, trainings=trained, seed=seed, least_gain=least_gain, mixed=mixed)
    planned = again(pilot, purchase)
    if pool is None and planned.recommended.n > MANY and (pool := split_pool(pilot, folder)):
        pilot, pool_from = with_pool(pilot, pool), f"the split {pilot.task_spec.partition(':')[0]!r}"
        progress(f"--pool {pool}: the tasks of {pool_from}")
        planned = again(pilot, purchase)
    asked = answers(folder, what_if, pilot=pilot, purchase=purchase, found=planned, replan=again)
    known = {"folder": str(folder), "pool_from": pool_from, "beside": [str(run) for run in beside]}
    return replace(planned, what_if=asked, pilot=planned.pilot | known)


def measured(
    pilot: Pilot, purchase: Purchase, bench: Bench, effort: Effort, *, mixed: bool = False, progress: Progress
) -> list[Training]:
    """Trainings that were kept and new ones, each chosen by what it is expected to bring."""
    arms = arms_of(pilot.recipe.T_max, mixed=mixed)
    offered = [offer for offer in offers(pilot, purchase, arms) if not offer.why_not]
    arms = [offer.arm for offer in offered]
    tokens = float(np.median([offer.cost_inference for offer in offered] or [1.0]))
    facts = facts_of(pilot, sunk=purchase.beside_tokens)
    return train_more([], bench, effort, facts=facts, arms=arms, tokens=tokens, progress=progress)


def plan_pilot(
    pilot: Pilot,
    purchase: Purchase,
    trainings: Sequence[Training] = (),
    *,
    seed: int = 0,
    least_gain: float = LEAST_GAIN,
    mixed: bool = False,
) -> Plan:
    """Plan from a pilot in memory; draws are made with `seed`, `mixed` as of `plan`."""
    facts = facts_of(pilot, sunk=purchase.beside_tokens)
    mixed = mixed or any(training.arm.context == "mixed" for training in trainings)
    depths = sorted({*DEPTHS, *pilot.contexts.k.astype(float).tolist()})
    arms = arms_of(pilot.recipe.T_max, depths=depths, mixed=mixed)
    every = offers(pilot, purchase, arms)
    offered = [offer for offer in every if not offer.why_not]
    own_price = pilot_price(pilot, axis=purchase.axis, prices=purchase.prices)
    if not offered:
        raise InputError(
            f"the budget leaves {purchase.left(pilot):,.6g} and buys nothing of any recipe "
            f"({every[0].why_not}); the pilot cost {own_price:,.6g}: give more, or name the pilot in "
            f"--already"
        )
    tokens = np.array([offer.cost_inference for offer in offered])
    arms = [offer.arm for offer in offered]
    post = posterior(trainings, facts)
    believed = drawn(post, arms, _budgets(tokens), pilot=facts.pilot, seed=seed)
    J = believed.at(tokens)
    mean, bands, first, loss = J.mean(0), band(J), p_best(J), regret(J)
    best = int(mean.argmax())
    kept = not_worse(J, best)
    candidates = [
        _candidate(pilot, offer, np.array([mean[at], *bands[:, at], first[at], loss[at]]))
        for at, offer in enumerate(offered)
    ]
    bc = [at for at, arm in enumerate(arms) if arm.recipe == "pure-bc"]
    beats = float((J[:, best] > J[:, bc].max(1)).mean()) if bc and best not in bc else 0.5
    ranked = bool(bc) and not any(kept[at] for at in bc)
    too_small = (
        len(pilot.clusters) < LEAST_TASKS or own_price * purchase.charged > PILOT_SHARE * purchase.budget
    )
    price, gain = costs(pilot, prices=purchase.prices), gains(pilot)
    teaches = _teaches(pilot, gain) or distinguishable(trainings) < APART
    status = "pilot_too_small" if too_small else "ranked" if ranked and teaches else "no_preference"
    order = np.argsort(-mean, kind="stable")
    return Plan(
        status=status,
        budget=purchase.budget,
        axis=purchase.axis,
        recommended=candidates[best],
        not_worse=tuple(candidates[at] for at in order if kept[at]),
        candidates=tuple(candidates[at] for at in order),
        pilot=_about(pilot, purchase, own_price),
        curve=_curve(
            believed, arms, tokens, budget=purchase.budget, left=purchase.left(pilot), least_gain=least_gain
        ),
        p_beats_bc=beats,
        calibrated=bool(trainings),
        unlike=post.unlike,
        trainings=tuple(_told(training) for training in trainings),
        warnings=doubts(
            pilot, gain, purchase=purchase, own_price=own_price, teaches=teaches, n=candidates[best].n
        ),
        costs=price.to_dict(),
        laws=other_laws(pilot),
        gains={
            "K": [K_text(K) for K in gain.K],
            "gain": gain.mean.tolist(),
            "se": gain.se.tolist(),
            "base": gain.base,
        },
        left_out=tuple(
            {"recipe": offer.arm.name, "pilot_traces": offer.arm.pilot_traces, "why": offer.why_not}
            for offer in every
            if offer.why_not
        ),
    )


def _budgets(tokens: Floats) -> list[float]:
    """A grid of tokens that holds every offer and the curve around it."""
    middle, least, most = (float(each) for each in (np.median(tokens), tokens.min(), tokens.max()))
    grid = {middle * step for step in STEPS} | {least, most, least * STEPS[0], most * STEPS[-1]}
    kept: list[float] = []
    for value in sorted(grid):
        if not kept or value > 1.02 * kept[-1]:
            kept.append(value)
    return kept


def _teaches(pilot: Pilot, gain: Gains) -> bool:
    """Whether the pilot shows that the teacher does better than its student, at 99 %."""
    (student, student_se), (teacher, teacher_se) = map(pass_at_1, (pilot.rollouts, pilot.demos))
    with np.errstate(invalid="ignore", divide="ignore"):
        z = gain.mean / gain.se
        apart = np.float64(teacher - student) / np.hypot(teacher_se, student_se)
    known = [one for one in (*z, apart) if not np.isnan(one)]
    return bool(max(known, default=-np.inf) > GAIN_Z)


def _candidate(pilot: Pilot, offer: Offer, value: Floats) -> Candidate:
    """value: [5] mean, band, P(best) and regret."""
    arm, recipe = offer.arm, offer.arm.recipe_of(pilot.recipe, n=offer.n)
    bought = {f.name for f in fields(Offer)} & {f.name for f in fields(Candidate)}
    expected = ("pass_at_1", "low", "high", "p_best", "regret")
    return Candidate(
        recipe=arm.recipe,
        recipe_hash=recipe.hash,
        K=recipe.K,
        r_tokens=arm.r,
        pilot_traces=arm.pilot_traces,
        context=arm.context,
        **{name: getattr(offer, name) for name in bought},
        **dict(zip(expected, np.round(value, 6).tolist(), strict=True)),
    )


def _curve(
    believed: Draws, arms: Sequence[Arm], tokens: Floats, *, budget: float, left: float, least_gain: float
) -> Curve:
    """pass@1 of the best arm with the budget left times each of STEPS, and where more stops to pay."""
    bc = [at for at, arm in enumerate(arms) if arm.recipe == "pure-bc"]
    names, values = [], []
    for step in STEPS:
        J = believed.at(tokens * step)
        best = int(J.mean(0).argmax())
        low, high = band(J[:, [best]])[:, 0]
        names.append(arms[best].name)
        values.append([J[:, best].mean(), low, high, J[:, bc].mean(0).max() if bc else math.nan])
    # A larger budget can buy what a smaller one does, and leave the rest.
    rising = np.maximum.accumulate(values).T
    paid, bought = budget - left, np.array(STEPS) * left
    tokens_a_unit = float(np.median(tokens)) / left if left else 1.0
    level, lows, highs, plain = (tuple(row) for row in rising.tolist())
    return Curve(
        budgets=tuple((paid + bought).tolist()),
        recipes=tuple(names),
        pass_at_1=level,
        low=lows,
        high=highs,
        more_demonstrations=plain,
        enough=_enough(bought, rising[0], paid, least_gain / 1000 * tokens_a_unit),
        least_gain=least_gain,
    )


def _enough(bought: Floats, level: Floats, paid: float, slope: float) -> float | None:
    """Budget where d pass@1 / d budget falls below `slope`; pass@1 is linear in log budget between points."""
    for at in range(len(bought) - 1):
        rise = (level[at + 1] - level[at]) / math.log(bought[at + 1] / bought[at])
        where = max(rise, 0.0) / slope  # d/dB of rise * log B is rise / B
        if where <= bought[at]:
            return float(paid + bought[at])
        if where < bought[at + 1]:
            return float(paid + where)
    return None


def _told(training: Training) -> dict[str, Any]:
    return training.arm.to_dict() | {
        "name": training.arm.name,
        "demo_tokens": training.demo_tokens,
        "continuation_tokens": training.continuation_tokens,
        "sunk_tokens": training.sunk_tokens,
        "seed": training.seed,
        "pass_at_1": training.pass_at_1,
        "se": training.se,
        "tasks": len(training.attempts),
        "attempts": round(sum(training.attempts)),
        "seconds": training.seconds,
    }


def _about(pilot: Pilot, purchase: Purchase, own_price: float) -> dict[str, Any]:
    return {
        "episodes": pilot.n_episodes,
        "tokens": pilot.tokens,
        "ess": pilot.ess,
        "missing_mass": pilot.missing_mass,
        "price": own_price,
        "charged": purchase.charged,
        "already_tokens": purchase.already_tokens,
        "beside_tokens": purchase.beside_tokens,
        "tasks": len(pilot.clusters),
        "pool": pilot.pool,
        "pool_stated": pilot.pool_stated,
        "task_spec": pilot.task_spec,
        "environment": pilot.environment,
        "student": pilot.student,
        "teacher": pilot.teacher,
        "T_max": pilot.recipe.T_max,
        "success_at": pilot.recipe.success_at,
        "contexts": len(pilot.contexts),
        "statuses": pilot.statuses,
        "J_student": pass_at_1(pilot.rollouts)[0],
        "J_teacher": pass_at_1(pilot.demos)[0],
        "from_learner": float(np.nanmean(pilot.contexts.teacher)),
        "accepted": accepted(pilot),
    }
