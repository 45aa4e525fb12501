"""Trainings for a judgement: chosen from the stored ones by a design, with the noise of an evaluation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.curves.evidence import Training
from benchmarks.planner_prior.stored import INF, small

SUCCESS, BC, OWN, EVERY, HALF, CRITICAL = (
    ("op-success", INF, 1.0),
    ("pure-bc", INF, 0.0),
    ("pilot-success", INF, 0.6),
    ("pilot", INF, 0.6),
    ("op-success", INF, 0.5),
    ("op-critical", INF, 1.0),
)
Design = list[tuple[tuple[str, int, float], float]]
"""[(stored arm, size in pilot costs)]"""
DESIGNS: dict[str, Design] = {
    "none": [],
    "max": [(SUCCESS, 0.9)] * 6 + [(BC, 0.9)] * 6 + [(OWN, 1.0)] * 4,
    "both": [(OWN, 1.0)] * 3
    + [(EVERY, 1.0)] * 2
    + [(SUCCESS, 0.9)] * 4
    + [(BC, 0.9)] * 4
    + [(SUCCESS, 0.2), (BC, 0.2), (HALF, 0.2)],
    "half": [(SUCCESS, 0.9)] * 4 + [(BC, 0.9)] * 4 + [(HALF, 0.9)] * 4 + [(OWN, 1.0)] * 4,
    "one": [(SUCCESS, 0.9), (BC, 0.9), (OWN, 1.0)],
    "eight": [(SUCCESS, 0.9)] * 3 + [(BC, 0.9)] * 3 + [(OWN, 1.0)] * 2,
}
AFTER: Design = [(SUCCESS, 1.6)] * 4 + [(BC, 1.6)] * 4 + [(HALF, 1.6)] * 4 + [(CRITICAL, 1.6)] * 4
"""Sixteen trainings after a first purchase."""
TASKS, ATTEMPTS = 100, 4
"""Of an evaluation."""


def chosen(pool: list[dict[str, Any]], design: Design) -> list[dict[str, Any]]:
    """Stored trainings of a design at the nearest stored sizes, one subset after another."""
    used: dict[Any, int] = {}
    found = []
    for key in design:
        arm, size = key
        same = [s for s in pool if tuple(s["arm"]) == arm]
        if same:
            nearest = min({s["size"] for s in same}, key=lambda z: abs(np.log(z / size)))
            same = [s for s in same if s["size"] == nearest]
            found.append(same[used.get(key, 0) % len(same)])
        used[key] = used.get(key, 0) + 1
    return found


def made(stored: list[dict[str, Any]], rng: np.random.Generator, *, shuffled: bool = False) -> list[Training]:
    """Trainings evaluated on TASKS x ATTEMPTS episodes around the exact pass@1.

    Args:
        stored: as in the files.
        rng: draws the episodes.
        shuffled: whether all tasks' results are permuted, so that they say nothing of arms.
    """
    kept = [(k, s, exact) for k, s in enumerate(stored) if (exact := small(s)) is not None]
    wins = np.array([rng.binomial(ATTEMPTS, s["J"], TASKS) for _, s, _ in kept]).reshape(len(kept), TASKS)
    if shuffled:
        wins = rng.permutation(wins.ravel()).reshape(wins.shape)
    return [
        replace(exact, seed=k, successes=tuple(map(float, won)), attempts=(ATTEMPTS,) * TASKS)
        for (k, _, exact), won in zip(kept, wins, strict=True)
    ]
