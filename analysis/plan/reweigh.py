"""One pilot under the laws of other recipes: what their contexts cost and gain, by weights.

The pilot draws a rollout and t' ~ Unif{1..T}, so turn t of a rollout with T turns has density 1/T. Another
law of contexts is the same draws with its density over that one as weight: T for one that takes every turn
of every rollout alike, 0 where a prefix filter rejects. What a continuation filter rejects is paid and not
kept.
The price of a weight is its effective sample size (Kish 1965): (sum w)^2 / sum w^2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from analysis.curves.arms import FILTERED
from analysis.plan.costs import costs_of_contexts
from analysis.plan.handback import gains
from analysis.plan.pilot import Floats, Pilot
from occupancy.record.recipe import K_text
from occupancy.statistics.clusters import clustered_ratio

LAWS = ("trajectory", "pooled", "task_pooled", "op-success", "op-critical", "oec", "op-failed")
"""Occupancies first, then recipes that differ from op-short in more than K."""
NOT_IDENTIFIED = {"leap": "the teacher chooses the switch, which no uniform draw of t' shows"}
NOTES = {"oec": "without its filter on repetition"}


def proposed(pilot: Pilot, law: str, context: str = "all") -> Floats:
    """[C] weight of each context in what the law gives the teacher to continue; `context`: see `Recipe`."""
    contexts = pilot.contexts
    if context == "mixed":
        return np.where(contexts.mixed, proposed(pilot, law), 0.0)
    T = contexts.T.astype(np.float64)
    if law in ("trajectory", "op-short", "op-success"):
        return np.ones(len(T))
    if law in ("pooled", "oec"):
        return T
    if law == "task_pooled":
        of_task = np.bincount(contexts.cluster, T, len(pilot.clusters))
        return T / of_task[contexts.cluster]
    return np.where(contexts.parent == 0, 1.0, 0.0)


def kept(pilot: Pilot, law: str, context: str = "all") -> Floats:
    """[C] and in what is trained on."""
    weight = proposed(pilot, law, context)
    if law not in FILTERED:
        return weight
    return np.where(pilot.contexts.teacher == 1, weight, 0.0)


def other_laws(pilot: Pilot) -> tuple[dict[str, Any], ...]:
    """A row a law: contexts of it, and of every law `identified`, plain values for JSON.

    accepted: share of what the teacher continued that is kept; ess: of what is kept; cost_inference and
    cost_training: tokens of one kept context with its whole continuation, rejected ones charged to the first;
    gain: G(K) at what is kept, by K.
    """
    unknown = ({"law": law, "identified": False, "note": why} for law, why in NOT_IDENTIFIED.items())
    return (*(_row(pilot, law) for law in LAWS), *unknown)


def _row(pilot: Pilot, law: str) -> dict[str, Any]:
    played, weight = proposed(pilot, law), kept(pilot, law)
    total = weight.sum()
    row: dict[str, Any] = {"law": law, "identified": bool(total > 0), "note": NOTES.get(law, "")}
    if not total > 0:
        return row | {"note": "no context of the pilot is of this law: its filters reject all of them"}
    whole = (costs_of_contexts(pilot, axis=axis, prices=None)[:, -1] for axis in ("inference", "training"))
    spent, spent_se, trained, trained_se = (
        float(number)
        for each, share in zip(whole, (played, weight), strict=True)
        for number in clustered_ratio(each * share, weight, cluster=pilot.contexts.cluster)
    )
    found = gains(pilot, weights=weight)
    return row | {
        "contexts": int((weight > 0).sum()),
        "ess": float(total**2 / (weight**2).sum()),
        "accepted": float(total / played.sum()),
        "cost_inference": spent,
        "cost_inference_se": spent_se,
        "cost_training": trained,
        "cost_training_se": trained_se,
        "K": [K_text(K) for K in found.K],
        "gain": found.mean.tolist(),
        "gain_se": found.se.tolist(),
        "convention": f"contexts weighted by law, tasks are clusters, U_0 from {found.base}",
    }
