"""Sums of one part of a data set, which add up to those of the whole.

A task may be in several parts. Sums of counts and of 1/T are whole numbers and do not depend on the order of
parts; sums of weights and of features are floats and are added in the order of the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from occupancy.kernels.chunks import Total
from occupancy.kernels.columns import Weights
from occupancy.record.errors import DataError
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.clusters import ClusterSums, cluster_sums, clusters
from occupancy.statistics.estimate import weighted_sums
from occupancy.statistics.exact import Counts, counts_of
from occupancy.statistics.tallies import Tally, tally
from occupancy.streaming.cells import CELL_BYTES, Cells, cells_of, merged, renamed

CELL_MEMORY = 1 << 30
Sums = TypeVar("Sums", Counts, ClusterSums)


@dataclass(frozen=True)
class Partial:
    """Sums of a part."""

    tally: Tally
    counts: Counts
    cells: Cells | None
    """None where no standard errors by state are asked for."""
    weighted: Float64 | None
    """[S] sums of the weights."""
    weight_squares: float
    means: dict[str, ClusterSums]
    """Sums of the features by convention; empty without features."""


def partial_of(part: Trajectories, *, cells: bool = True, workers: int | None = None) -> Partial:
    """Sums of a batch that has a turn."""
    weighted, squares = None, 0.0
    if part.weights is not None:
        w = part.weights.astype(np.float64)
        weighted = weighted_sums(part, Weights(np.empty(0), part.weights), workers)
        squares = float(w @ w)
    names = ["pooled", "trajectory", *([] if part.weights is None else ["weights"])]
    means = {
        name: cluster_sums(part, convention=name, workers=workers, part=True)
        for name in (names if part.features is not None else ())
    }
    found = cells_of(part) if cells else None
    counts = counts_of(part, *clusters(part))
    return Partial(tally(part, workers=workers), counts, found, weighted, squares, means)


def with_ids(part: Partial, states: Int64 | None, tasks: Int64 | None) -> Partial:
    """The same sums under other ids of states and tasks, each given by its old id; None leaves them."""
    if states is None and tasks is None:
        return part
    found = replace(part, cells=None if part.cells is None else renamed(part.cells, states, tasks))
    if states is not None:
        known = states[: len(part.tally.counts)]
        table = np.zeros((3, int(states.max()) + 1), np.int64)
        table[:, known] = part.tally.counts, part.tally.high, part.tally.low
        found = replace(found, tally=replace(part.tally, counts=table[0], high=table[1], low=table[2]))
        if part.weighted is not None:
            weighted = np.zeros(table.shape[1])
            weighted[known] = part.weighted
            found = replace(found, weighted=weighted)
    if tasks is not None:
        order = np.argsort(tasks[part.counts.tasks])
        names = ("tasks", "turns", "trajectories")
        rows = {name: getattr(part.counts, name)[order] for name in names}
        counts = replace(part.counts, **(rows | {"tasks": tasks[rows["tasks"]]}))
        means = {name: replace(sums, tasks=tasks[sums.tasks]) for name, sums in part.means.items()}
        found = replace(found, counts=counts, means={n: joined([sums]) for n, sums in means.items()})
    return found


class Parts:
    """Running sums over parts."""

    def __init__(self, cell_memory: int = CELL_MEMORY) -> None:
        self.cell_memory = cell_memory
        self.tally: Tally | None = None
        self.counts: list[Counts] = []
        self.cells: list[Cells] = []
        self.weighted = Total(0)
        self.weight_squares = Total(1)
        self._means: dict[str, list[ClusterSums]] = {}

    def add(self, part: Partial) -> None:
        """Add the sums of a part."""
        self.tally = part.tally if self.tally is None else _sum(self.tally, part.tally)
        self.counts = _folded([*self.counts, part.counts], _added)
        if part.weighted is not None:
            self.weighted = with_part(self.weighted, part.weighted)
            self.weight_squares.add(np.array([part.weight_squares]))
        for name, sums in part.means.items():
            self._means[name] = _folded([*self._means.get(name, ()), sums], joined)
        if part.cells is not None:
            self.cells.append(part.cells)
            most = self.cell_memory // CELL_BYTES
            if sum(map(len, self.cells)) > most:
                self.cells = [merged(self.cells)]
                n = len(self.cells[0])
                if n > 2 * most // 3:  # near the limit every part would be joined again
                    raise DataError(
                        f"standard errors by state: {n:,} pairs of task and state so far take "
                        f"{3 * n * CELL_BYTES // 2 >> 20} MB, and {self.cell_memory >> 20} MB are allowed: "
                        f"raise --error-memory, or set it to 0 for no standard errors by state"
                    )

    def all_counts(self) -> Counts:
        """Counts of all parts, tasks rising."""
        return _added(self.counts)

    @property
    def means(self) -> dict[str, ClusterSums]:
        """Sums of the features of all parts, by convention."""
        return {name: joined(sums) for name, sums in self._means.items()}


def _folded(parts: list[Sums], fold: Callable[[list[Sums]], Sums]) -> list[Sums]:
    """The parts, as one where the later ones know more tasks than the first: each is joined a few times."""
    more = sum(len(part.tasks) for part in parts[1:]) > len(parts[0].tasks)
    return [fold(parts)] if more else parts


def _added(parts: Sequence[Counts]) -> Counts:
    """Counts of parts that may share tasks."""
    tasks, at = np.unique(np.concatenate([c.tasks for c in parts]), return_inverse=True)
    turns, many = np.zeros((2, len(tasks)), np.int64)
    np.add.at(turns, at, np.concatenate([c.turns for c in parts]))
    np.add.at(many, at, np.concatenate([c.trajectories for c in parts]))
    lengths, at = np.unique(np.concatenate([c.lengths for c in parts]), return_inverse=True)
    of_length = np.zeros(len(lengths), np.int64)
    np.add.at(of_length, at, np.concatenate([c.many for c in parts]))
    return Counts(tasks, turns, many, lengths, of_length)


def joined(parts: Sequence[ClusterSums]) -> ClusterSums:
    """Sums of parts that may share tasks."""
    tasks, at = np.unique(np.concatenate([p.tasks for p in parts]), return_inverse=True)
    rows = np.concatenate([np.column_stack([p.numerators, p.denominators]) for p in parts])
    sums = np.zeros((len(tasks), rows.shape[1]))
    np.add.at(sums, at, rows)
    return ClusterSums(sums[:, :-1], sums[:, -1], tasks, sum(p.weight_squares for p in parts))


def with_part(total: Total, part: Float64) -> Total:
    """Running sums by state with a part added, of which either may know more states."""
    known, wide = len(total.sum), Total(max(len(part), len(total.sum)))
    wide.sum[:known], wide.lost[:known] = total.sum, total.lost
    wide.add(np.pad(part, (0, len(wide.sum) - len(part))))
    return wide


def _sum(one: Tally, other: Tally) -> Tally:
    """Sum of two tallies of which one may know more states."""
    S = max(len(one.counts), len(other.counts))
    return _widen(one, S) + _widen(other, S)


def _widen(part: Tally, S: int) -> Tally:
    pad = (0, S - len(part.counts))
    counts, high, low = (np.pad(column, pad) for column in (part.counts, part.high, part.low))
    return replace(part, counts=counts, high=high, low=low)
