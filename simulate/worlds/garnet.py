"""Garnet worlds: random transitions with few branches (Archibald, McKinnon and Thomas, 1995).

Some states have an action that ends in success; the teacher plays nearly optimally, the student is a
mixture of the teacher's policy and a random one. Nothing in them favours any K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from occupancy.record.specs import Few, Range, Share, check
from simulate.worlds.hardships import best_turns
from simulate.worlds.types import World, WorldError


@dataclass(frozen=True)
class Garnet:
    """Knobs of a random world."""

    states: Annotated[int, Range(2)] = 200
    actions: Annotated[int, Range(2)] = 4
    branches: Few = 3
    """Successors of a state and action."""
    goals: Share = 0.05
    """Share of states with an action that succeeds; at least one state has it."""
    traps: Share = 0.02
    """Chance that a turn ends in failure."""
    student: Share = 0.45
    """Weight of the teacher's policy in pi_0."""
    teacher: Share = 0.95
    """Weight of the optimal action in pi_e; the rest is uniform."""
    starts: Few = 20
    """States that an episode can start in, under a Zipf law of exponent 1."""
    features: Few = 64
    """D"""
    tokens: Annotated[int, Range(2)] = 100
    """Mean tokens of a teacher turn; each state's lies within half of it."""
    horizon: Few = 25
    """T_max, turns."""
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, error=WorldError)
        if max(self.starts, self.branches) > self.states:
            raise WorldError(
                f"starts={self.starts}, branches={self.branches}: expected at most states={self.states}"
            )


def garnet_world(knobs: Garnet, *, name: str = "garnet") -> World:
    """Build the world that the knobs describe; the same knobs give the same world."""
    rng = np.random.default_rng(knobs.seed)
    S, A, b = knobs.states, knobs.actions, knobs.branches
    following = rng.integers(0, S, (S, A, b))
    chance = rng.dirichlet(np.ones(b), (S, A)) * (1 - knobs.traps)
    goal_states = rng.permutation(S)[: max(1, round(knobs.goals * S))]
    following[goal_states, rng.integers(0, A, len(goal_states)), 0] = S
    successors = np.concatenate([following.reshape(S, A * b), np.full((S, 1), S + 1)], axis=1)
    chances = np.zeros((S, A, A * b + 1))
    for a in range(A):
        chances[:, a, a * b : (a + 1) * b] = chance[:, a]
    chances[:, :, -1] = 1 - chances[:, :, :-1].sum(axis=2)
    best = best_turns(successors, chances, turns=knobs.horizon)
    teacher = np.full((S, A), (1 - knobs.teacher) / A)
    teacher[np.arange(S), best] += knobs.teacher
    base = knobs.student * teacher + (1 - knobs.student) * rng.dirichlet(np.ones(A), S)
    raw = rng.standard_normal((S, knobs.features))
    start = np.zeros(S)
    start[: knobs.starts] = 1 / np.arange(1, knobs.starts + 1)
    return World(
        name=name,
        start=start / start.sum(),
        successors=successors.astype(np.int32),
        chances=chances,
        teacher=teacher,
        base=base,
        contexts=np.arange(S, dtype=np.int32),
        features=raw / np.linalg.norm(raw, axis=1, keepdims=True),
        tokens=rng.integers(knobs.tokens // 2, knobs.tokens * 3 // 2 + 1, S),
        horizon=knobs.horizon,
    )
