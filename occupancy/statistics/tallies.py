"""Pooled and trajectory-uniform histograms in one pass, exact and independent of the order of the turns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occupancy.kernels.chunks import chunk_turns, cuts, in_order, kernels_for
from occupancy.kernels.columns import Turns
from occupancy.kernels.fixed_point import carry, to_float
from occupancy.record.errors import DataError
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.clusters import require_weight


@dataclass(frozen=True)
class Tally:
    """Sums over turns; those of parts add up exactly to those of the whole."""

    counts: Int64
    """[S] turns in each state."""
    high: Int64
    """[S] sum of 1/T over the turns in each state, upper word; see `occupancy.kernels.fixed_point`."""
    low: Int64
    """[S] lower word, below 2**32."""
    n_trajectories: int
    n_empty: int

    @property
    def inverse_lengths(self) -> Float64:
        """[S] sum of 1/T over the turns in each state."""
        return to_float(self.high, self.low)

    @property
    def pooled(self) -> Float64:
        """[S] pooled occupancy."""
        return self.counts / float(self.counts.sum())

    @property
    def trajectory(self) -> Float64:
        """[S] trajectory-uniform occupancy."""
        return self.inverse_lengths / (self.n_trajectories - self.n_empty)

    def __add__(self, other: Tally) -> Tally:
        if len(self.counts) != len(other.counts):
            numbers = f"{len(self.counts)} and {len(other.counts)}"
            raise DataError(f"tallies of {numbers} states: expected the same n_states")
        high, low = carry(self.high + other.high, self.low + other.low)
        if high.min(initial=0) < 0:
            raise DataError(
                f"1/T sums to more than 2**32 in state {int(high.argmin())}: more than 64 bits hold; add "
                f"the two occupancies by their weights instead"
            )
        n, empty = self.n_trajectories + other.n_trajectories, self.n_empty + other.n_empty
        return Tally(self.counts + other.counts, high, low, n, empty)


def tally(trajectories: Trajectories, *, workers: int | None = None) -> Tally:
    """Pooled and trajectory-uniform histograms of a batch, exactly; tallies of parts can be added.

    Raises:
        DataError: The batch has no turn.

    Example:
        >>> (tally(first_half) + tally(second_half)).pooled
    """
    offsets, S = trajectories.offsets, trajectories.n_states
    kernels = kernels_for(trajectories.n_turns)
    require_weight(trajectories.n_turns, trajectories)

    def part(begin: int, end: int) -> Int64:
        table = np.zeros((S, 3), np.int64)
        kernels.tally(Turns(offsets[begin : end + 1], trajectories.states), table)
        return table

    counts, high, low = np.zeros((3, S), np.int64)
    for table in in_order(part, cuts(offsets, 4 * chunk_turns(S)), workers=workers):  # exact: any cut will do
        counts += table[:, 0]
        high, low = carry(high + table[:, 1], low + table[:, 2])
    return Tally(counts, high, low, len(trajectories), trajectories.n_empty)
