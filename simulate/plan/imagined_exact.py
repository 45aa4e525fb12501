"""Exact laws of an imagined world, by dynamic programming for many students at once.

A student moves as the teacher with chance learnt[v, c] at node v, else as it did before. Arrays over places
have V + X + 2 rows: the nodes, what a class holds on average, success and failure.

Axes: V nodes, X classes, C students, T_max turns.
"""

from __future__ import annotations

import numpy as np

from occupancy.compiled import compiled
from simulate.plan.imagined_places import Places
from simulate.types import Float64

UNIFORM, FAILED, FIXED = range(3)
LAWS = 3
"""Laws of a switch: t' ~ Unif{1..T}; the same after a failed rollout; t' ~ Unif{1..T_max} where t' <= T."""


@compiled
def values(places: Places, learnt: Float64, T_max: int) -> Float64:
    """[C] pass@1 of students learnt [V, C]."""
    V, X, C = places.weight.size, places.first.size - 1, learnt.shape[1]
    now, after = np.zeros((V + X + 2, C)), np.zeros((V + X + 2, C))
    for c in range(C):
        now[V + X, c] = after[V + X, c] = 1.0
    for _ in range(T_max):
        before(places, learnt, after, now)
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
    twice = np.empty((V, 2 * C))
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
        before(places, twice, after, now)
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
def before(places: Places, learnt: Float64, after: Float64, now: Float64) -> None:
    """Expectations [V + X + 2, C] one turn earlier; those of success and failure are left as they are."""
    V, C = places.weight.size, learnt.shape[1]
    student, teacher = np.empty(C), np.empty(C)
    for v in range(V):
        for c in range(C):
            student[c] = teacher[c] = 0.0
        for m in range(places.used[v]):
            y, s, e = places.to[v, m], places.student[v, m], places.teacher[v, m]
            for c in range(C):
                student[c] += s * after[y, c]
                teacher[c] += e * after[y, c]
        for c in range(C):
            now[v, c] = student[c] + learnt[v, c] * (teacher[c] - student[c])
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
