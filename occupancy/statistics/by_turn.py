"""Occupancy by turn number: state of the context before turn t, among trajectories with T >= t."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occupancy.record.errors import InputError
from occupancy.record.types import Float64, Int64, Trajectories


@dataclass(frozen=True)
class TurnOccupancy:
    """Counts by turn number; row t - 1 is turn t."""

    counts: Int64
    """[turns, S] trajectories in each state before turn t."""
    alive: Int64
    """[turns] trajectories with T >= t."""

    @property
    def probability(self) -> Float64:
        """[turns, S] each row sums to 1; rows that no trajectory reaches are 0."""
        return self.counts / np.maximum(self.alive, 1)[:, None]


def occupancy_by_turn(trajectories: Trajectories, *, turns: int | None = None) -> TurnOccupancy:
    """Counts by turn number 1..turns and state; by default up to the longest trajectory.

    Raises:
        InputError: `turns` is negative.
    """
    lengths, S = trajectories.lengths, trajectories.n_states
    longest = int(lengths.max(initial=0))
    turns = longest if turns is None else turns
    if turns < 0:
        raise InputError(f"turns={turns}: expected a number of at least 0")
    place = np.arange(trajectories.n_turns) - np.repeat(trajectories.offsets[:-1], lengths)
    inside = place < turns
    cells = place[inside] * S + trajectories.states[inside]
    counts = np.bincount(cells, minlength=turns * S).astype(np.int64).reshape(turns, S)
    alive = np.bincount(np.minimum(lengths, turns), minlength=turns + 1)[::-1].cumsum()[::-1][1:]
    return TurnOccupancy(counts, alive.astype(np.int64))
