"""G(K) = E_h[U_K(h) - U_0(h)]: what K teacher turns are worth when the student then finishes.

Convention: h is trajectory-uniform (a rollout, then one of its turns with equal chance), as the pilot
draws it; `weights` of T make every turn of every rollout count the same.

U_k is the success rate of the hand-back's replicates, U_inf that of the full continuation, and where the
teacher was done within k turns U_k is the continuation's success. U_0 needs hand-backs at k = 0. The
success of the rollout that h was drawn from is no substitute: a turn is drawn with probability 1/T, and
rollouts that succeed are short, so the draw has seen the future and its mean > E U_0. (Pooled weights undo
it: whether turn t exists is known from h_{t-1} alone.) Without them U_0 is taken from all rollouts that
are alive at turn t', which errs the other way, by less.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.pilot import Contexts, Flags, Floats, Pilot
from occupancy.record.recipe import INF
from occupancy.statistics.clusters import clustered_ratio, sums_by_cluster

ENOUGH = 0.5
"""Share of contexts with a hand-back at k = 0 from which on they are used."""


@dataclass(frozen=True)
class Gains:
    """G(K) at the measured depths; the last is K = inf."""

    K: tuple[float, ...]
    """[M + 1]"""
    values: Floats
    """[C, M + 1] U_K - U_0; 0 where the weight is 0."""
    weights: Floats
    """[C, M + 1] weight of each context in the mean."""
    mean: Floats
    """[M + 1] G(K)."""
    se: Floats
    """[M + 1] clustered by task."""
    base: str
    """Where U_0 comes from: handback, alive or parent."""


def gains(pilot: Pilot, *, base: str | None = None, weights: Floats | None = None) -> Gains:
    """Estimate G(K) at every measured depth.

    A context whose hand-back was not played, or failed, is represented by those of its kind (teacher
    not done within k turns) that have one: leaving it out alone would favour short continuations.
    base: where U_0 comes from; by default the best that the pilot has.
    weights: [C] of the contexts, see `reweigh`; None for the pilot's own law.
    """
    contexts = pilot.contexts
    base = base or best_base(pilot)
    known_starts = {"handback": contexts.student, "parent": contexts.parent}
    start = known_starts[base] if base in known_starts else _alive(pilot)
    full, done = contexts.teacher, _done(contexts)
    won = np.where(done, full[:, None], np.column_stack([contexts.handback, full]))
    known = np.isfinite(won) & np.isfinite(start)[:, None]
    shares = np.zeros(won.shape)
    for column in range(won.shape[1]):
        for kind in (done[:, column], ~done[:, column]):
            eligible = kind & np.isfinite(full)
            have = eligible & known[:, column]
            shares[have, column] = eligible.sum() / max(have.sum(), 1)
    if weights is not None:
        shares = shares * weights[:, None]
    values = np.where(shares > 0, won - start[:, None], 0.0)
    mean, se = clustered_ratio(values * shares, shares, cluster=contexts.cluster)
    return Gains(
        K=(*(float(k) for k in contexts.k), INF), values=values, weights=shares, mean=mean, se=se, base=base
    )


def best_base(pilot: Pilot) -> str:
    """Hand-backs at k = 0 where most contexts have one, else the rollouts alive at the same turn."""
    return "handback" if np.isfinite(pilot.contexts.student).mean() >= ENOUGH else "alive"


def _done(contexts: Contexts) -> Flags:
    """[C, M + 1] the continuation was over within k turns."""
    over = contexts.turns.lengths[:, None] <= contexts.k
    return np.column_stack([over, np.ones(len(contexts), bool)])


def _alive(pilot: Pilot) -> Floats:
    """[C] mean R of the rollouts that are alive at turn t', with each task's pull on that mean.

    The pull (the influence of a task's rollouts on the mean over contexts) is spread over the task's
    contexts. It sums to 0 and lets the clustered error and the bootstrap see that U_0 is estimated.
    """
    contexts, rollouts, Q = pilot.contexts, pilot.rollouts, len(pilot.clusters)
    known = np.isfinite(rollouts.R)
    turn = np.arange(1, int(max(rollouts.T.max(), contexts.t_prime.max())) + 1)
    alive = (rollouts.T[known, None] >= turn).astype(float)
    R = rollouts.R[known, None]
    value = (alive * R).sum(0) / np.maximum(alive.sum(0), 1)
    share = np.bincount(contexts.t_prime, minlength=len(turn) + 1)[1:] / np.maximum(alive.sum(0), 1)
    pull = sums_by_cluster(
        ((R - value) * alive * share).sum(1), cluster=rollouts.cluster[known], n_clusters=Q
    )
    held = np.bincount(contexts.cluster, minlength=Q)
    spread = np.divide(pull, held, out=np.zeros(Q), where=held > 0)
    return np.asarray(value[contexts.t_prime - 1] + spread[contexts.cluster])
