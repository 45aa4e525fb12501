"""What planners must cope with: hopeless tasks, teachers that fail, students that generalise and saturate.

A `Draft` says how a kind of task moves and what is right; `finished` adds teacher, features, pi_0 and
hopeless tasks. Desk, maze and search are such kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from occupancy.record.specs import Fraction, NotNegative, Range, Share, check
from simulate.pipelines.outcome import chances_of
from simulate.worlds.students import LogLinear, softmax
from simulate.worlds.types import Float64, Int32, Int64, World, WorldError

STUDENT = LogLinear(steps=120, rate=4.0, momentum=0.9, ridge=30.0)
CONVINCED = 0.9
"""Chance that the teacher plays its wrong turn where it is convinced of it."""
STRONGEST = 12.0
"""Log-odds that pi_0's knowledge gives the right turn at most."""


@dataclass(frozen=True)
class Hardships:
    """Knobs that these kinds of worlds share."""

    hopeless: Fraction = 0.15
    """Fraction of tasks that nobody can solve; nothing in them tells which."""
    errors: NotNegative = 1.0
    """Factor on the teacher's chance of a wrong turn, which is the kind's own in each state."""
    convictions: Share = 0.5
    """Fraction of the teacher's errors that are convictions: contexts where it nearly always plays the same
    wrong turn. The rest are slips, drawn anew each time. Convictions are learned; slips average out."""
    features: Annotated[int, Range(2)] = 64
    """D. Fewer: the student saturates sooner, and what is learned in one context moves more of the others."""
    student: Fraction = 0.45
    """pass@1 of pi_0 over that of the teacher, where knowledge of the right turns can bring it there."""
    uneven: NotNegative = 1.0
    """How much pi_0's knowledge differs between regions of contexts; 0: the same everywhere."""
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, error=WorldError)


@dataclass(frozen=True, eq=False)
class Draft:
    """How a kind of task moves; every state is a context of its own."""

    start: Float64
    """[S] weights of the first state."""
    successors: Int32
    """[S, U]"""
    chances: Float64
    """[S, A, U]"""
    right: Int64
    """[S] right turn."""
    error: Float64
    """[S] chance that the teacher errs there."""
    latent: Float64
    """[S, L] description of a context, of which features are random projections."""
    tokens: Float64
    """[S] of a teacher turn."""
    horizon: int


def finished(draft: Draft, knobs: Hardships, rng: np.random.Generator, *, name: str) -> World:
    """The world of a draft under its hardships."""
    S, A = draft.chances.shape[:2]
    error = np.clip(knobs.errors * draft.error, 0.0, 0.95)
    convinced = rng.random(S) < knobs.convictions * error
    prefers = np.where(convinced, (draft.right + rng.integers(1, A, S)) % A, draft.right)
    teacher = around(prefers, np.where(convinced, CONVINCED, 1 - (1 - knobs.convictions) * error), A, rng)
    world = World(
        name=name,
        start=draft.start / draft.start.sum(),
        successors=draft.successors,
        chances=draft.chances,
        teacher=teacher,
        base=np.full((S, A), 1 / A),
        contexts=np.arange(S, dtype=np.int32),
        features=projections(draft.latent, knobs.features, rng),
        tokens=np.maximum(1, np.rint(draft.tokens)).astype(np.int64),
        horizon=draft.horizon,
        student=STUDENT,
    )
    direction = rng.standard_normal(draft.latent.shape[1])
    region = draft.latent @ direction / np.linalg.norm(draft.latent, axis=1).clip(1e-9)
    strength = np.exp(knobs.uneven * region)[:, None] * np.eye(A)[draft.right]
    noise = 0.7 * rng.standard_normal((S, A))
    goal = knobs.student * float(world.start @ chances_of(world, teacher))
    base = weakest(
        lambda c: softmax(noise + np.minimum(c * strength, STRONGEST)),
        lambda policy: float(world.start @ chances_of(world, policy)) >= goal,
    )
    return with_hopeless(replace(world, base=base), knobs.hopeless)


def weakest(policy: Callable[[float], Float64], enough: Callable[[Float64], bool]) -> Float64:
    """policy(c) at the least c from 0 to STRONGEST that is enough, by bisection; at STRONGEST if none is."""
    low, high = 0.0, STRONGEST
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(policy(middle)) else (middle, high)
    return policy(high)


def around(best: Int64, chance: Float64, A: int, rng: np.random.Generator) -> Float64:
    """[S, A] policies with `chance` on `best`; the rest is spread over the other turns, unevenly."""
    other = rng.dirichlet(np.full(A, 0.6), len(best)) + 1e-6
    other[np.arange(len(best)), best] = 0.0
    policy = other * ((1 - chance) / other.sum(axis=1))[:, None]
    policy[np.arange(len(best)), best] = chance
    return np.asarray(policy / policy.sum(axis=1, keepdims=True))


def best_turns(successors: Int64, chances: Float64, *, turns: int, discount: float = 1.0) -> Int64:
    """[S] the best action with so many turns ahead, by value iteration; a success is worth 1."""
    value = np.append(np.zeros(len(successors)), [1.0, 0.0])
    for _ in range(turns):
        worth = discount * (chances * value[successors][:, None]).sum(axis=2)
        value[:-2] = worth.max(axis=1)
    return np.asarray(worth.argmax(axis=1))


def projections(latent: Float64, D: int, rng: np.random.Generator) -> Float64:
    """[X, D] features: D - 1 random directions of the description at norm 1, and a constant."""
    phi = latent @ rng.standard_normal((latent.shape[1], D - 1))
    phi /= np.linalg.norm(phi, axis=1, keepdims=True).clip(1e-9)
    return np.column_stack([phi, np.full(len(phi), 0.3)])


def described(parts: list[tuple[float, Int64]], width: int, rng: np.random.Generator) -> Float64:
    """[S, width] sum of random vectors, one for each value of each part; parts are (weight, value [S])."""
    total = np.zeros((len(parts[0][1]), width))
    for weight, value in parts:
        _, number = np.unique(value, return_inverse=True)
        total += weight * rng.standard_normal((int(number.max()) + 1, width))[number]
    return total


def with_hopeless(world: World, fraction: float) -> World:
    """The same world where a fraction of the tasks cannot be solved: their success counts as failure.

    A hopeless task's states look like those of the others to student, teacher and whoever reads a pilot.
    """
    if not 0 <= fraction < 1:
        raise WorldError(f"hopeless={fraction}: expected a fraction from 0 below 1")
    if not fraction:
        return world
    S = world.S
    following = world.successors.astype(np.int64)
    lost = 2 * S + 1
    solvable = np.where(following < S, following, following + S)
    twice: dict[str, Any] = {
        name: np.concatenate([getattr(world, name)] * 2)
        for name in ("chances", "teacher", "contexts", "tokens", "shown")
    }
    return replace(
        world,
        start=np.concatenate([(1 - fraction) * world.start, fraction * world.start]),
        successors=np.concatenate([solvable, np.where(following < S, following + S, lost)]),
        **twice,
    )
