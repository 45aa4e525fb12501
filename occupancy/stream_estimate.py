"""Occupancies and means of a stream of parts, in one pass and bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
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


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Sum of tallies whose number of states grows; exact, so in any order."""
    total: Tally | None = None
    for part in tallies:
        if total is None:
            total = part
            continue
        S = max(len(total.counts), len(part.counts))
        total = _widen(total, S) + _widen(part, S)
    if total is None:
        raise DataError("the source has no rows: expected a turn at least")
    return total


def estimate_stream(stream: TurnStream, *, n_empty: int = 0, workers: int | None = None) -> StreamEstimate:
    """Pooled and trajectory-uniform occupancy and means, and those under the weights where they are given.

    n_empty trajectories without rows are counted beside those of the stream. A stream of one part gets
    everything that `occupancy` gives.
    """
    conventions = ["pooled", "trajectory", *(["weights"] if stream.columns.weight else [])]
    pass_ = _Pass(conventions)
    tallies = (pass_.add(part, workers) for part in stream.parts())
    total = merge_tallies(tallies)
    total = replace(total, n_trajectories=total.n_trajectories + n_empty, n_empty=total.n_empty + n_empty)
    only = pass_.first if stream.n_parts == 1 else None
    found = {name: pass_.occupancy(name, total, only, workers) for name in conventions}
    means = {name: pass_.mean(name, total) for name in conventions} if stream.columns.features else {}
    return StreamEstimate(found, means, total, stream.n_parts)


class _Pass:
    """Running sums of one pass."""

    def __init__(self, conventions: list[str]) -> None:
        self.conventions = conventions
        self.first: Trajectories | None = None
        self.inverse = Total(1)
        self.weighted = Total(0)
        self.weight_squares = Total(1)
        self.sums: dict[str, list[ClusterSums]] = {name: [] for name in conventions}
        self.tasks: set[int] = set()

    def add(self, part: Trajectories, workers: int | None) -> Tally:
        self.first = self.first or part
        self.inverse.add(np.array([(1.0 / part.lengths).sum()]))
        self.tasks.update(np.unique(part.tasks).tolist())
        if part.weights is not None:
            w = part.weights.astype(np.float64)
            self.weighted = _grown(self.weighted, part.n_states)
            self.weighted.add(np.bincount(part.states, w, minlength=part.n_states).astype(np.float64))
            self.weight_squares.add(np.array([w @ w]))
        if part.features is not None:
            for name in self.conventions:
                found = partial_sums(part, convention=name, workers=workers)
                self.sums[name] = [_joined([*self.sums[name], found])]
        return tally(part, workers=workers)

    def occupancy(self, name: str, total: Tally, only: Trajectories | None, workers: int | None) -> Occupancy:
        if only is not None:
            found = occupancy(only, convention=name, workers=workers)
            return replace(found, n_trajectories=total.n_trajectories, n_empty=total.n_empty)
        if name == "pooled":
            p, ess = total.pooled, float(total.counts.sum())
        elif name == "trajectory":
            p = total.trajectory
            ess = (total.n_trajectories - total.n_empty) ** 2 / float(self.inverse.value[0])
        else:
            sums = self.weighted.value
            if not sums.sum() > 0:
                raise DataError("the weights of all turns sum to zero: expected a positive weight somewhere")
            p, ess = sums / sums.sum(), float(sums.sum() ** 2 / self.weight_squares.value[0])
        return Occupancy(p, None, len(self.tasks), total.n_trajectories, total.n_empty, ess, name)

    def mean(self, name: str, total: Tally) -> Mean:
        sums = self.sums[name][0]
        B = float(sums.denominators.sum())
        if not B > 0:
            raise DataError("the weights of all turns sum to zero: expected a positive weight somewhere")
        found = ratio(sums)
        ess = B**2 / sums.weight_squares
        return Mean(
            found.value, found.standard_error, sums.n_weighted, total.n_trajectories, total.n_empty, ess, name
        )


def _joined(parts: list[ClusterSums]) -> ClusterSums:
    """Sums of parts that may share tasks."""
    tasks, at = np.unique(np.concatenate([p.tasks for p in parts]), return_inverse=True)
    rows = np.concatenate([np.column_stack([p.numerators, p.denominators]) for p in parts])
    sums = np.zeros((len(tasks), rows.shape[1]))
    np.add.at(sums, at, rows)
    return ClusterSums(sums[:, :-1], sums[:, -1], tasks, sum(p.weight_squares for p in parts))


def _widen(part: Tally, S: int) -> Tally:
    pad = (0, S - len(part.counts))
    return replace(
        part, counts=np.pad(part.counts, pad), high=np.pad(part.high, pad), low=np.pad(part.low, pad)
    )


def _grown(total: Total, S: int) -> Total:
    wide = Total(max(S, len(total.sum)))
    wide.sum[: len(total.sum)], wide.lost[: len(total.sum)] = total.sum, total.lost
    return wide
