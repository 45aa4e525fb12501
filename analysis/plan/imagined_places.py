"""An imagined world as compiled code reads it, and the teacher's turns in it, drawn.

Draws are keyed by (draw, stream, turn, episode), so recipes differ by what they do and not by their luck.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occupancy.kernels.compiled import compiled
from simulate.pipelines.kernels import entry
from simulate.worlds.types import Float64, Int32, Int64

_LOW, _HALF, _UNIT = np.uint64(0xFFFF_FFFF), np.uint64(32), 2.0**-32


class Places(NamedTuple):
    """An imagined world: V nodes sorted by class, X classes, U moves from each node."""

    start: Float64
    """[V] the start law."""
    to: Int32
    """[V, U] where a move leads: node v < V, V + x for any node of class x, V + X success,
    V + X + 1 failure."""
    student: Float64
    """[V, U] the student's law over moves."""
    teacher: Float64
    """[V, U] the teacher's."""
    used: Int64
    """[V] moves that either of them makes, the first ones."""
    first: Int64
    """[X + 1] the nodes of class x are first[x] .. first[x + 1] - 1."""
    weight: Float64
    """[V] how often a node comes within its class."""
    within: Float64
    """[V] running sums of that."""
    guide: Int64
    """[V] a class of n nodes: where its running sums first pass 0, 1 / n, 2 / n, ... (Chen and Asau 1974)."""
    tokens: Float64
    """[V] output tokens of a teacher turn."""
    unit: Int64
    """[V] the context that a policy reads there: what is learnt at a node is learnt at all of its unit."""
    kappa: Float64
    """[W] labels after which half of a unit is learnt."""


@compiled
def move(places: Places, v: int, key: np.uint64, episode: int) -> int:
    """One turn of the teacher from node v: the next node; V and V + 1 are success and failure."""
    V, X = places.weight.size, places.first.size - 1
    bits = entry(key, np.uint64(episode))
    u = np.float64(bits >> _HALF) * _UNIT
    at, last = 0, places.used[v] - 1
    total = places.teacher[v, 0]
    while at < last and total <= u:
        at += 1
        total += places.teacher[v, at]
    code = int(places.to[v, at])
    if code < V:
        return code
    if code >= V + X:
        return code - X
    u = np.float64(bits & _LOW) * _UNIT
    low, high = places.first[code - V], places.first[code - V + 1]
    at = int(places.guide[low + int(u * (high - low))])
    while places.within[at] <= u:
        at += 1
    return at


@compiled
def teach(
    places: Places, v: int, t: int, K: int, keys: np.ndarray, episode: int, nodes: Int64
) -> tuple[int, int]:
    """Let the teacher play from node v at turn t, K turns at most: their number and the last node.

    keys: [T_max + 1] of the turns; nodes: [T_max] is filled with where each turn was played.
    """
    V, T_max, L = places.weight.size, keys.size - 1, 0
    while v < V and K > L and t + L <= T_max:
        nodes[L] = v
        v = move(places, v, keys[t + L], episode)
        L += 1
    return L, v


@compiled
def passed(running: Float64, u: float) -> int:
    """The first entry whose running sum is above u, or the last one."""
    low, high = 0, running.size - 1
    while low < high:
        middle = (low + high) // 2
        if running[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return low
