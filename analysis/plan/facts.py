"""What a pilot says before anything is trained: to the model of curves, and to the reader of a plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from analysis.curves.arms import FILTERED
from analysis.curves.prior import Facts
from analysis.plan.costs import costs_of_contexts
from analysis.plan.pilot import Episodes, Floats, Pilot
from analysis.plan.reweigh import kept, proposed
from occupancy.statistics.clusters import mean_over_tasks


def facts_of(pilot: Pilot, *, sunk: float = 0.0) -> Facts:
    """What the model of learning curves reads, before anything is trained.

    sunk: teacher tokens of other runs that every student is trained on.
    """
    contexts = pilot.contexts
    early = contexts.t_prime <= contexts.T / 2
    later = zip(contexts.handback.T, contexts.replicates.T, strict=True)
    played = {0: (contexts.student, contexts.student_replicates)} | dict(
        zip(contexts.k.tolist(), later, strict=True)
    )

    def won(values: Floats, among: Any = True) -> tuple[float, int] | None:
        data = values[np.isfinite(values) & among]
        return (float(data.sum()), len(data)) if len(data) else None

    def handed(k: int) -> tuple[float, int] | None:
        rate, n = played.get(k, (np.zeros(0), np.zeros(0)))
        return (float((np.nan_to_num(rate) * n).sum()), int(n.sum())) if n.any() else None

    shown, tails = pilot.demo_turns.lengths, contexts.turns.lengths
    return Facts(
        student=won(pilot.rollouts.R),
        teacher=won(pilot.demos.R),
        learner=won(contexts.teacher),
        failed=won(contexts.teacher, contexts.parent == 0),
        early=won(contexts.teacher, early),
        late=won(contexts.teacher, ~early),
        handback0=handed(0),
        handback1=handed(1),
        handback5=handed(5),
        T_max=float(pilot.recipe.T_max),
        turns_demo=float(shown.mean()) if shown.any() else None,
        turns_tail=float(tails.mean()),
        **pilot.surprise,
        pilot=float(pilot.tokens),
        sunk=sunk,
    )


def pass_at_1(episodes: Episodes) -> tuple[float, float]:
    """Success of episodes, all tasks alike, and its standard error; NaN without rewards."""
    known = np.isfinite(episodes.R)
    if not known.any():
        return math.nan, math.nan
    tasks = episodes.cluster[known]
    mean, se = mean_over_tasks(episodes.R[known], task=tasks, cluster=tasks)
    return float(mean), float(se)


def accepted(pilot: Pilot) -> dict[str, float]:
    """By recipe with a filter: share of what it buys, in tokens, that it trains on; NaN if it buys none."""
    whole = costs_of_contexts(pilot, axis="inference", prices=None)[:, -1]
    shares = {}
    for recipe in FILTERED:
        played, used = (law(pilot, recipe) * whole for law in (proposed, kept))
        shares[recipe] = float(used.sum() / played.sum()) if played.sum() > 0 else math.nan
    return shares
