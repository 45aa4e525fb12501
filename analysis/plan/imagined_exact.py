"""Exact laws of an imagined world, by dynamic programming for many students at once.

A student moves as the teacher with chance learnt[v, c] at node v, else as it did before. A share
clean[v, c] of what it learnt is from turns that led to success, and is learnt as such: a filter does not
only refuse turns, it keeps the better ones. Arrays over places have V + X + 2 rows: the nodes, what a class
holds on average, success and failure.

Axes: V nodes, X classes, C students, T_max turns.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np

from analysis.plan.imagined_places import Places
from occupancy.kernels.compiled import compiled
from simulate.worlds.types import Float64

UNIFORM, FAILED, FIXED = range(3)
LAWS = 3
"""Laws of a switch: t' ~ Unif{1..T}; the same after a failed rollout; t' ~ Unif{1..T_max} where t' <= T."""
LEAST = 1e-12
"""A node from which the teacher succeeds more seldom has no turn that leads to success."""


@compiled
def values(places: Places, learnt: Float64, clean: Float64, T_max: int) -> Float64:
    """[C] pass@1 of students learnt [V, C], clean [V, C]."""
    V, X, C = places.weight.size, places.first.size - 1, learnt.shape[1]
    winner = winners(places, T_max)
    now, after = np.zeros((V + X + 2, C)), np.zeros((V + X + 2, C))
    for c in range(C):
        now[V + X, c] = after[V + X, c] = 1.0
    for _ in range(T_max):
        before(places, learnt, clean, winner, after, now)
        now, after = after, now
    found = np.zeros(C)
    for v in range(V):
        for c in range(C):
            found[c] += places.start[v] * after[v, c]
    return found


@compiled
def switches(places: Places, learnt: Float64, T_max: int) -> Float64:
    """[LAWS, C, T_max * V] running sums of the chance that a rollout is switched at each place.

    Turns come last to first: entry (T_max - t) * V + v is node v before turn t. The last sum is the chance
    that a rollout is switched at all.
    """
    V, X, C = places.weight.size, places.first.size - 1, learnt.shape[1]
    alive = np.zeros((T_max, V + X + 2, C))
    # Columns c: E[1 / T] from here on; columns C + c: the same of rollouts that fail.
    now, after = np.full((V + X + 2, 2 * C), 1.0 / T_max), np.full((V + X + 2, 2 * C), 1.0 / T_max)
    twice, clean = np.empty((V, 2 * C)), np.zeros((V, 2 * C))
    for v in range(V):
        for c in range(C):
            alive[0, v, c] = places.start[v]
            twice[v, c] = twice[v, C + c] = learnt[v, c]
    for t in range(1, T_max):
        then(places, learnt, alive[t - 1], alive[t])
    running, total = np.empty((LAWS, C, T_max * V)), np.zeros((LAWS, C))
    for t in range(T_max, 0, -1):
        for c in range(C):
            after[V + X, c] = after[V + X + 1, c] = after[V + X + 1, C + c] = 1.0 / t
            after[V + X, C + c] = 0.0
        before(places, twice, clean, places.teacher, after, now)
        for c in range(C):
            for v in range(V):
                here = alive[t - 1, v, c]
                total[UNIFORM, c] += here * now[v, c]
                total[FAILED, c] += here * now[v, C + c]
                total[FIXED, c] += here / T_max
                for law in range(LAWS):
                    running[law, c, (T_max - t) * V + v] = total[law, c]
        now, after = after, now
    return running


@compiled
def winners(places: Places, T_max: int) -> Float64:
    """[V, U] the teacher's law over moves where it then succeeds (Doob's transform)."""
    V, X = places.weight.size, places.first.size - 1
    now, after = np.zeros((V + X + 2, 1)), np.zeros((V + X + 2, 1))
    now[V + X, 0] = after[V + X, 0] = 1.0
    whole, none = np.ones((V, 1)), np.zeros((V, 1))
    for _ in range(T_max):
        before(places, whole, none, places.teacher, after, now)
        now, after = after, now
    law = places.teacher.copy()
    for v in range(V):
        total = 0.0
        for m in range(places.used[v]):
            total += law[v, m] * after[places.to[v, m], 0]
        if total > LEAST:
            for m in range(places.used[v]):
                law[v, m] *= after[places.to[v, m], 0] / total
    return law


@compiled
def before(
    places: Places, learnt: Float64, clean: Float64, winner: Float64, after: Float64, now: Float64
) -> None:
    """Expectations [V + X + 2, C] one turn earlier; those of success and failure are left as they are."""
    V, C = places.weight.size, learnt.shape[1]
    student, teacher, success = np.empty(C), np.empty(C), np.empty(C)
    for v in range(V):
        for c in range(C):
            student[c] = teacher[c] = success[c] = 0.0
        for m in range(places.used[v]):
            y, s, e, w = places.to[v, m], places.student[v, m], places.teacher[v, m], winner[v, m]
            for c in range(C):
                student[c] += s * after[y, c]
                teacher[c] += e * after[y, c]
                success[c] += w * after[y, c]
        for c in range(C):
            shown = teacher[c] + clean[v, c] * (success[c] - teacher[c])
            now[v, c] = student[c] + learnt[v, c] * (shown - student[c])
    for x in range(places.first.size - 1):
        for c in range(C):
            now[V + x, c] = 0.0
        for v in range(places.first[x], places.first[x + 1]):
            for c in range(C):
                now[V + x, c] += places.weight[v] * now[v, c]


@compiled
def then(places: Places, learnt: Float64, now: Float64, after: Float64) -> None:
    """Chances [V + X + 2, C] one turn later; after is 0 when it is given."""
    V, C = places.weight.size, learnt.shape[1]
    for v in range(V):
        for m in range(places.used[v]):
            y, s, e = places.to[v, m], places.student[v, m], places.teacher[v, m]
            for c in range(C):
                after[y, c] += now[v, c] * (s + learnt[v, c] * (e - s))
    for x in range(places.first.size - 1):
        for v in range(places.first[x], places.first[x + 1]):
            for c in range(C):
                after[v, c] += after[V + x, c] * places.weight[v]
