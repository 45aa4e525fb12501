"""Obviously correct twins of the planner's estimators, one context at a time."""

from __future__ import annotations

import math

import numpy as np

from analysis.plan.filling import GROUPS, SINGLES
from analysis.plan.imagined_places import Places
from analysis.plan.pilot import Pilot


def mean_cost(pilot: Pilot, K: float) -> float:
    """Teacher output tokens of the first min(K, L) turns, averaged over contexts."""
    turns = pilot.contexts.turns
    total = 0.0
    for c in range(len(pilot.contexts)):
        own = turns.output[turns.offsets[c] : turns.offsets[c + 1]]
        total += sum(own[: int(min(K, len(own)))])
    return total / len(pilot.contexts)


def mean_gain(pilot: Pilot, k: int) -> float:
    """U_k - U_0 averaged over contexts, for a pilot without missing hand-backs."""
    contexts = pilot.contexts
    column = list(contexts.k).index(k)
    gains = []
    for c in range(len(contexts)):
        over = contexts.turns.lengths[c] <= k
        reward = contexts.teacher[c] if over else contexts.handback[c, column]
        gains.append(reward - contexts.student[c])
    return sum(gains) / len(gains)


def clustered_se(numerator: list[float], denominator: list[float], cluster: list[int]) -> float:
    """Standard error of sum(numerator) / sum(denominator), clusters drawn independently."""
    names = sorted(set(cluster))
    ratio = sum(numerator) / sum(denominator)
    total = 0.0
    for name in names:
        A = sum(a for a, q in zip(numerator, cluster, strict=True) if q == name)
        B = sum(b for b, q in zip(denominator, cluster, strict=True) if q == name)
        total += (A - ratio * B) ** 2
    return math.sqrt(len(names) / (len(names) - 1) * total) / sum(denominator)


def fill(tasks: np.ndarray, a: float, b: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights and sizes of the nodes of one class."""
    K = len(tasks)
    if a < 0:
        left = max(round(b / -a), K, 1) - K
        n = min(left, SINGLES + GROUPS)
        size = np.full(n, left / max(n, 1))
        weight = rng.gamma(np.concatenate([tasks - a, -a * size]))
        return np.maximum(weight, 1e-12), np.concatenate([np.ones(K), size])
    strength = b + a * K
    mass = rng.gamma(np.concatenate([tasks - a, [strength]]))
    mass = mass / mass.sum()
    stick = rng.beta(1 - a, strength + a * np.arange(1, SINGLES + 1))
    rest = mass[-1] * np.concatenate([[1.0], np.cumprod(1 - stick)])
    strength += a * SINGLES
    size, half = np.ones(K + SINGLES + GROUPS), rest[-1] * 0.5 ** np.arange(1, GROUPS + 1)
    half[-1] *= 2
    for group in range(GROUPS):
        # A stick takes (1 - a) / (1 - a + strength + a) of the rest: so many of them halve it.
        size[K + SINGLES + group] = max(np.log(2) * (strength + 1) / (1 - a), 1.0)
        strength += a * size[K + SINGLES + group]
    return np.maximum(np.concatenate([mass[:-1], rest[:-1] * stick, half]), 1e-12), size


def one_turn(places: Places, learnt: np.ndarray) -> np.ndarray:
    """[V, V + 2] where a turn leads from each node, success and failure last."""
    V, X = len(places.unit), len(places.first) - 1
    turn = np.zeros((V, V + 2))
    for v in range(V):
        law = (1 - learnt[v]) * places.student[v] + learnt[v] * places.teacher[v]
        for chance, code in zip(law, places.to[v], strict=True):
            if V <= code < V + X:
                inside = slice(places.first[code - V], places.first[code - V + 1])
                turn[v, inside] += chance * places.weight[inside]
            else:
                turn[v, code if code < V else code - X] += chance
    return turn


def paths(places: Places, learnt: np.ndarray, T_max: int) -> list[tuple[float, list[int], bool]]:
    """Every rollout: its chance, its nodes, and whether it wins."""
    V, turn, found = len(places.unit), one_turn(places, learnt), []

    def go(chance: float, nodes: list[int]) -> None:
        for y in np.flatnonzero(turn[nodes[-1]]):
            here = chance * turn[nodes[-1], y]
            if y < V and len(nodes) < T_max:
                go(here, [*nodes, int(y)])
            else:
                found.append((here, nodes, bool(y == V)))

    for v in np.flatnonzero(places.start):
        go(places.start[v], [int(v)])
    return found


def winner(places: Places, T_max: int) -> np.ndarray:
    """[V, U] chance of each move of the teacher, given that all T_max turns after it end with success."""
    V, X = len(places.unit), len(places.first) - 1
    value = np.zeros(V + X + 2)
    value[V + X] = 1.0
    for _ in range(T_max):
        now = (places.teacher * value[places.to]).sum(1)
        inside = [slice(places.first[x], places.first[x + 1]) for x in range(X)]
        value = np.concatenate([now, [places.weight[part] @ now[part] for part in inside], [1.0, 0.0]])
    joint = places.teacher * value[places.to]
    total = joint.sum(1, keepdims=True)
    return np.where(total > 1e-12, joint / np.maximum(total, 1e-300), places.teacher)
