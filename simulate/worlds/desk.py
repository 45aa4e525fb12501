"""Desk worlds: short horizon. A request goes through a few steps; mistakes bring trouble, in the end failure.

A right turn takes away trouble, or goes to the next step where there is none. Teachers are good while all is
calm and poor in deep trouble, where students are most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy.record.specs import Few, Fraction, Share
from simulate.worlds.hardships import Draft, Hardships, described, finished
from simulate.worlds.types import Int64, World, WorldError

ACTIONS, TROUBLE, WIDTH = 6, 3, 64


@dataclass(frozen=True)
class Desk(Hardships):
    """Knobs of a desk world."""

    requests: Few = 18
    """Kinds of requests."""
    steps: Few = 4
    """Steps that solve one."""
    wordings: Few = 5
    """Contexts of each request, step and trouble."""
    shared: Share = 0.5
    """Fraction of right turns that are the same for all requests at a step and trouble."""
    luck: Fraction = 0.04
    """Chance that the client leaves in a turn, whatever is done."""
    horizon: Few = 10
    """T_max, turns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon < self.steps:
            raise WorldError(f"horizon={self.horizon}: expected at least as many turns as steps={self.steps}")


def desk_world(knobs: Desk, *, name: str = "desk") -> World:
    """Build the world that the knobs describe; the same knobs give the same world."""
    rng = np.random.default_rng(knobs.seed)
    N, P, V, A = knobs.requests, knobs.steps, knobs.wordings, ACTIONS
    S = N * P * TROUBLE * V
    i, p, d, _ = np.unravel_index(np.arange(S), (N, P, TROUBLE, V))

    def place(step: Int64, trouble: Any) -> Int64:
        """[S] the same request at another step and trouble, in a wording drawn for each state."""
        return np.asarray(((i * P + step) * TROUBLE + trouble) * V + rng.integers(0, V, S))

    common, own = rng.integers(0, A, (P, TROUBLE)), rng.integers(0, A, (N, P, TROUBLE))
    right = np.where((rng.random((N, P, TROUBLE)) < knobs.shared)[i, p, d], common[p, d], own[i, p, d])
    odd = rng.random(S) < 0.15
    right = np.where(odd, rng.integers(0, A, S), right)
    solved, lost = S, S + 1
    last, calm, worst = p == P - 1, d == 0, d == TROUBLE - 1
    onward = [
        np.where(calm, np.where(last, solved, place(np.minimum(p + 1, P - 1), 0)), place(p, d - 1))
        for _ in "ab"
    ]
    worse = np.where(worst, lost, place(p, np.minimum(d + 1, TROUBLE - 1)))
    successors = np.stack([*onward, place(p, d), worse, np.full(S, lost)], axis=1)
    stays = 1 - knobs.luck
    chances = np.tile([0.0, 0.0, 0.4 * stays, 0.5 * stays, 0.1 * stays + knobs.luck], (S, A, 1))
    chances[np.arange(S), right] = [stays / 2, stays / 2, 0.0, 0.0, knobs.luck]
    latent = described(
        [
            *((1.0, i), (1.0, p), (1.0, d), (0.9, i * P + p), (0.9, p * TROUBLE + d)),
            *((0.6, (i * P + p) * TROUBLE + d), (0.4, np.arange(S))),
        ],
        WIDTH,
        rng,
    )
    demand = rng.permutation(np.arange(1, N + 1) ** -0.7)
    draft = Draft(
        start=np.where((p == 0) & calm, demand[i], 0.0),
        successors=successors,
        chances=chances,
        right=right,
        error=np.array([0.05, 0.25, 0.5])[d] * rng.uniform(0.6, 1.4, S),
        latent=latent,
        tokens=rng.uniform(60, 140) * np.array([1.0, 1.5, 2.0])[d] * rng.uniform(0.8, 1.2, S),
        horizon=knobs.horizon,
    )
    return finished(draft, knobs, rng, name=name)
