"""Occupancies and means of a stream of parts, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from occupancy.chunks import Total
from occupancy.clusters import ClusterSums, partial_sums, ratio
from occupancy.errors import DataError
from occupancy.estimate import Mean, Occupancy, occupancy
from occupancy.stream import TurnStream
from occupancy.tallies import Tally, tally
from occupancy.types import Trajectories


@dataclass(frozen=True)
class StreamEstimate:
    """What a stream of turns says, under each convention that it was read for."""

    occupancies: dict[str, Occupancy]
    """By convention. Their standard errors are None where the stream did not fit into one part."""
    means: dict[str, Mean]
    """By convention, of the features; with standard errors always. Empty without features."""
    tally: Tally
    n_parts: int


def estimate_stream(stream: TurnStream, *, n_empty: int = 0, workers: int | None = None) -> StreamEstimate:
    """Pooled and trajectory-uniform occupancy and means, and those under the weights where they are given.

    n_empty trajectories without rows are counted beside those of the stream. A stream of one part gets
    everything that `occupancy` gives.
    """
    sums = Pass(["pooled", "trajectory", *(["weights"] if stream.columns.weight else [])])
    for part in stream.parts():
        sums.add(part, workers)
    return sums.finish(n_empty=n_empty, workers=workers)


class Pass:
    """Running sums of one pass over the parts of a data set."""

    def __init__(self, conventions: Sequence[str]) -> None:
        self.conventions = conventions
        self.n_parts = 0
        self.tally: Tally | None = None
        self.only: Trajectories | None = None
        self.inverse = Total(1)
        self.weighted = Total(0)
        self.weight_squares = Total(1)
        self.sums: dict[str, ClusterSums] = {}
        self.tasks: set[int] = set()

    def add(self, part: Trajectories, workers: int | None) -> None:
        """Add a part; state and task ids mean the same in all parts."""
        self.n_parts += 1
        self.only = part if self.n_parts == 1 else None
        found = tally(part, workers=workers)
        self.tally = found if self.tally is None else _sum(self.tally, found)
        self.inverse.add(np.array([(1.0 / part.lengths).sum()]))
        self.tasks.update(np.unique(part.tasks).tolist())
        if part.weights is not None:
            w = part.weights.astype(np.float64)
            self.weighted = grown(self.weighted, part.n_states)
            states = len(self.weighted.sum)
            self.weighted.add(np.bincount(part.states, w, minlength=states).astype(np.float64))
            self.weight_squares.add(np.array([w @ w]))
        if part.features is not None:
            for name in self.conventions:
                sums = partial_sums(part, convention=name, workers=workers)
                self.sums[name] = _joined([self.sums[name], sums]) if name in self.sums else sums

    def finish(self, *, n_empty: int = 0, workers: int | None = None) -> StreamEstimate:
        """Estimates from all parts; n_empty trajectories had no rows."""
        if self.tally is None:
            raise DataError("the source has no rows: expected a turn at least")
        total = replace(
            self.tally,
            n_trajectories=self.tally.n_trajectories + n_empty,
            n_empty=self.tally.n_empty + n_empty,
        )
        found = {name: self._occupancy(name, total, workers) for name in self.conventions}
        means = {name: self._mean(name, total) for name in self.conventions if name in self.sums}
        return StreamEstimate(found, means, total, self.n_parts)

    def _occupancy(self, name: str, total: Tally, workers: int | None) -> Occupancy:
        counts = (total.n_trajectories, total.n_empty)
        if self.only is not None:
            found = occupancy(self.only, convention=name, workers=workers)
            return replace(found, n_trajectories=counts[0], n_empty=counts[1])
        if name == "pooled":
            p, ess = total.pooled, float(total.counts.sum())
        elif name == "trajectory":
            p, ess = total.trajectory, (counts[0] - counts[1]) ** 2 / float(self.inverse.value[0])
        else:
            sums = self.weighted.value
            require_positive(float(sums.sum()))
            p, ess = sums / sums.sum(), float(sums.sum() ** 2 / self.weight_squares.value[0])
        return Occupancy(p, None, len(self.tasks), *counts, ess, name)

    def _mean(self, name: str, total: Tally) -> Mean:
        sums = self.sums[name]
        B = float(sums.denominators.sum())
        require_positive(B)
        found, ess = ratio(sums), B**2 / sums.weight_squares
        counts = (sums.n_weighted, total.n_trajectories, total.n_empty)
        return Mean(found.value, found.standard_error, *counts, ess, name)


def require_positive(total: float) -> None:
    """Refuse weights that sum to zero."""
    if not total > 0:
        raise DataError("the weights of all turns sum to zero: expected a positive weight somewhere")


def _joined(parts: list[ClusterSums]) -> ClusterSums:
    """Sums of parts that may share tasks."""
    tasks, at = np.unique(np.concatenate([p.tasks for p in parts]), return_inverse=True)
    rows = np.concatenate([np.column_stack([p.numerators, p.denominators]) for p in parts])
    sums = np.zeros((len(tasks), rows.shape[1]))
    np.add.at(sums, at, rows)
    return ClusterSums(sums[:, :-1], sums[:, -1], tasks, sum(p.weight_squares for p in parts))


def _sum(one: Tally, other: Tally) -> Tally:
    """Sum of two tallies of which one may know more states."""
    S = max(len(one.counts), len(other.counts))
    return _widen(one, S) + _widen(other, S)


def _widen(part: Tally, S: int) -> Tally:
    pad = (0, S - len(part.counts))
    return replace(
        part, counts=np.pad(part.counts, pad), high=np.pad(part.high, pad), low=np.pad(part.low, pad)
    )


def grown(total: Total, S: int) -> Total:
    """The same running sums with S states at least."""
    wide = Total(max(S, len(total.sum)))
    wide.sum[: len(total.sum)], wide.lost[: len(total.sum)] = total.sum, total.lost
    return wide
