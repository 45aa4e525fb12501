"""Obviously correct twins of the planner's estimators, one context at a time."""

from __future__ import annotations

import math

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
