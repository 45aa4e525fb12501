"""Search worlds: five turns, the answer among them. Each question needs one to three finds, then the answer.

A right query mostly finds the next piece; a wrong one mostly brings something misleading, which another query
has to clear. Answering early is a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from occupancy.record.specs import Few, Range, Share
from simulate.worlds.hardships import Draft, Hardships, described, finished
from simulate.worlds.types import Int64, World

ACTIONS, ANSWER, LEVELS, WIDTH = 6, 5, 4, 64
GUESS = np.array([0.92, 0.25, 0.08, 0.03])
"""Chance that an answer is right, by the number of pieces that are missing."""


@dataclass(frozen=True)
class Search(Hardships):
    """Knobs of a search world."""

    questions: Few = 45
    """Kinds of questions."""
    wordings: Few = 3
    """Contexts of each question and what was found."""
    finds: Share = 0.85
    """Chance that the right query finds the next piece."""
    misled: Share = 0.6
    """Chance that a wrong query brings something misleading."""
    shared: Share = 0.5
    """Fraction of right queries that are the same for all questions of a type."""
    types: Few = 6
    horizon: Annotated[int, Range(4)] = 5
    """T_max, turns."""


def search_world(knobs: Search, *, name: str = "search") -> World:
    """Build the world that the knobs describe; the same knobs give the same world."""
    rng = np.random.default_rng(knobs.seed)
    Q, V, A = knobs.questions, knobs.wordings, ACTIONS
    S = Q * LEVELS * 2 * V
    q, found, misled, _ = np.unravel_index(np.arange(S), (Q, LEVELS, 2, V))

    def place(level: Int64, lost: Any) -> Int64:
        """[S] the same question with other finds, in a wording drawn for each state."""
        return np.asarray(((q * LEVELS + level) * 2 + lost) * V + rng.integers(0, V, S))

    needed = rng.integers(1, LEVELS, Q)[q]
    missing = np.maximum(needed - found, 0)
    kind = rng.integers(0, knobs.types, Q)[q]
    common = rng.integers(0, ANSWER, (knobs.types, LEVELS, 2))
    own = rng.integers(0, ANSWER, (Q, LEVELS, 2))
    same = (rng.random((Q, LEVELS, 2)) < knobs.shared)[q, found, misled]
    query = np.where(same, common[kind, found, misled], own[q, found, misled])
    right = np.where((missing == 0) & (misled == 0), ANSWER, query)
    next_level = np.minimum(found + 1, LEVELS - 1)
    cleared = [np.where(misled == 1, place(found, 0), place(next_level, 0)) for _ in range(2)]
    successors = np.stack(
        [*cleared, place(found, misled), place(found, 1), np.full(S, S), np.full(S, S + 1)], axis=1
    )
    chances = np.tile([0.0, 0.0, 1 - knobs.misled, knobs.misled, 0.0, 0.0], (S, A, 1))
    hit = knobs.finds
    chances[np.arange(S), query] = [hit / 2, hit / 2, 1 - hit, 0.0, 0.0, 0.0]
    wins = GUESS[missing] * np.where(misled == 1, 0.6, 1.0)
    chances[:, ANSWER] = 0.0
    chances[:, ANSWER, 4], chances[:, ANSWER, 5] = wins, 1 - wins
    seen = (q * LEVELS + found) * 2 + misled
    level = (kind * LEVELS + found) * 2 + misled
    latent = described(
        [(1, q), (1, kind), (1.5, (missing == 0) * 2 + misled), (1, level), (0.7, seen), (0.4, np.arange(S))],
        WIDTH,
        rng,
    )
    demand = rng.permutation(np.arange(1, Q + 1) ** -0.5)
    draft = Draft(
        start=np.where((found == 0) & (misled == 0), demand[q], 0.0),
        successors=successors,
        chances=chances,
        right=right,
        error=np.where(misled == 1, 0.3, 0.06 + 0.05 * found) * rng.uniform(0.6, 1.4, S),
        latent=latent,
        tokens=rng.uniform(40, 120) * np.where(misled == 1, 1.5, 1.0) * rng.uniform(0.8, 1.2, S),
        horizon=knobs.horizon,
    )
    return finished(draft, knobs, rng, name=name)
