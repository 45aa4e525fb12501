"""What the families of worlds share: states on a grid, random features, and a finished world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Made = tuple[Any, np.ndarray, None]
"""A world, [X] its right turn in each context, and a shift of the student's turns (none here)."""
Family = Callable[[np.random.Generator, str, float], Made]
"""(random numbers, name, noise in 0..1 of the teacher's mistakes) -> a world."""
FEATURES = 80
"""Latent directions of contexts, before a student's features are projected from them."""


def grid(*shape: int) -> tuple[tuple[np.ndarray, ...], Callable[..., Any]]:
    """([S] each coordinate of every state of a product of ranges, the number of the state at coordinates)."""
    steps = [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]

    def at(*place: Any) -> Any:
        return sum(step * x for step, x in zip(steps, place, strict=True))

    return tuple(g.ravel() for g in np.meshgrid(*map(np.arange, shape), indexing="ij")), at


def normals(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """A function of a shape that draws standard normal features of that shape, [..., FEATURES]."""
    return lambda *shape: rng.standard_normal((*shape, FEATURES))


def finished(  # noqa: PLR0917 - the parts of a world, which every family has under these names
    base: Any,
    rng: np.random.Generator,
    name: str,
    family: str,
    start: np.ndarray,
    trans: dict[tuple[int, int], list[tuple[int, float]]],
    teacher: np.ndarray,
    ctx: np.ndarray,
    phi: np.ndarray,
    tokens: np.ndarray,
    horizon: int,
    right: np.ndarray,
) -> Made:
    """A world of the base class, with a learner of its own: penalty, learning rate and epochs are drawn.

    Args:
        base: the module of the file of worlds.
        rng: draws the learner.
        name, family: of the world.
        start: [S] weights of the first state.
        trans: {(state, action): [(next state, probability)]}; state S is success and S + 1 failure.
        teacher: [S, A] the teacher's law.
        ctx: [S] the context that a state shows.
        phi: [X, D] features of contexts.
        tokens: [S] teacher tokens of a turn.
        horizon: T_max.
        right: [X] right turn in each context.
    """
    S, A = teacher.shape
    succ, prob = base.pack(trans, S, A)
    world = base.World(
        name, family, start / start.sum(), succ, prob, teacher, ctx, phi, tokens, horizon, [""] * S
    )
    world.lam = float(np.exp(rng.uniform(np.log(0.1), np.log(1.0))))
    world.rate, world.epochs = float(rng.uniform(2.0, 5.0)), float(rng.uniform(2.0, 5.0))
    return world, right, None
