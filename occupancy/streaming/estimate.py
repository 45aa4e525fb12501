"""Occupancies and means of a stream of parts, in one pass and bounded memory.

Sums are kept by state, by task, and for standard errors by pair of task and state that occurs, in
`cell_memory` bytes (240 a pair while parts are joined). Pooled, trajectory-uniform and task-pooled
occupancies and their errors have the same bits as in memory; those under weights, and means, agree to
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from occupancy.kernels.columns import Totals
from occupancy.record.errors import DataError
from occupancy.record.types import Trajectories
from occupancy.statistics.clusters import ClusterSums, ratio
from occupancy.statistics.conventions import EXACT
from occupancy.statistics.estimate import Mean, mean, occupancy
from occupancy.statistics.exact import Counts, Occupancy
from occupancy.statistics.spread import residuals_of_cells, standard_errors
from occupancy.statistics.tallies import Tally, tally
from occupancy.streaming.cells import merged, occupancy_of_cells
from occupancy.streaming.partial import CELL_MEMORY, Partial, Parts, partial_of
from occupancy.streaming.stream import TurnStream


@dataclass(frozen=True)
class StreamEstimate:
    """Estimates from a stream of turns, under each convention."""

    occupancies: dict[str, Occupancy]
    """By convention; task-pooled only where cells of task and state are kept."""
    means: dict[str, Mean]
    """By convention, of the features; empty without features."""
    tally: Tally
    n_parts: int


def estimate_stream(
    stream: TurnStream, *, n_empty: int = 0, workers: int | None = None, cell_memory: int = CELL_MEMORY
) -> StreamEstimate:
    """Occupancies and means of a stream under every convention, in one pass.

    Args:
        stream: From `open_turns`.
        n_empty: Trajectories without rows, counted beside those of the stream.
        workers: Threads; the result does not depend on their number.
        cell_memory: Bytes for counts by task and state. With 0 there are no standard errors by state and no
            task-pooled occupancy, unless everything fits into one part.

    Raises:
        DataError: The stream has no rows, breaks its contract, or needs more than `cell_memory`.

    Example:
        >>> stream = open_turns("turns.parquet", Columns(state="cell"))
        >>> estimate_stream(stream).occupancies["pooled"].probability
    """
    sums = Pass(cell_memory)
    for part in stream.parts():
        sums.add(part, workers)
    return sums.finish(n_empty=n_empty, workers=workers)


class Pass:
    """Running sums of one pass over parts, in all of which state and task ids mean the same."""

    def __init__(self, cell_memory: int = CELL_MEMORY) -> None:
        self.n_parts = 0
        self.parts = Parts(cell_memory)
        self.only: Trajectories | None = None

    def add(self, part: Trajectories, workers: int | None) -> None:
        """Add a part; if it is the only one, it is estimated in memory."""
        first, self.only = self.only, None
        self.n_parts += 1
        if self.n_parts == 1:
            self.only = part
            return
        for each in (first, part):
            if each is not None:
                self.parts.add(partial_of(each, cells=self.parts.cell_memory > 0, workers=workers))

    def add_sums(self, part: Partial) -> None:
        """Add a part whose sums are known."""
        self.n_parts += 1
        self.parts.add(part)

    def finish(self, *, n_empty: int = 0, workers: int | None = None) -> StreamEstimate:
        """Estimates from all parts; n_empty trajectories had no rows."""
        whole = self.only
        total = self.parts.tally if whole is None else tally(whole, workers=workers)
        if total is None:
            raise DataError("the source has no rows: expected a turn at least")
        n, empty = total.n_trajectories + n_empty, total.n_empty + n_empty
        total = replace(total, n_trajectories=n, n_empty=empty)
        if whole is None:
            return self._of_parts(total)
        found, means = {}, {}
        for name in [*EXACT, *([] if whole.weights is None else ["weights"])]:
            share = occupancy(whole, convention=name, workers=workers)
            found[name] = replace(share, n_trajectories=n, n_empty=empty)
            if whole.features is not None:
                average = mean(whole, convention=name, workers=workers)
                means[name] = replace(average, n_trajectories=n, n_empty=empty)
        return StreamEstimate(found, means, total, 1)

    def _of_parts(self, total: Tally) -> StreamEstimate:
        parts, counts = self.parts, self.parts.all_counts()
        cells = merged(parts.cells) if parts.cells else None
        known = (total.n_trajectories, total.n_empty)
        names = EXACT if cells is not None else EXACT[:2]
        found = {name: occupancy_of_cells(counts, total, cells, name) for name in names}
        if len(parts.weighted.sum):
            sums, errors = parts.weighted.value, None
            B = float(sums.sum())
            require_positive(B)
            n_tasks = len(counts.tasks)
            if cells is not None:
                at = np.searchsorted(counts.tasks, cells.task)
                sizes = np.bincount(at, minlength=len(counts.tasks))
                mass = np.bincount(at, cells.weight, minlength=len(counts.tasks)).astype(np.float64)
                totals = Totals(mass, sums / B)
                spread = residuals_of_cells(cells.weight, cells.state, sizes, totals, counts.turns)
                errors, n_tasks = standard_errors(*spread, B), spread[1]
            ess = B**2 / float(parts.weight_squares.value[0])
            found["weights"] = Occupancy(sums / B, errors, n_tasks, *known, ess, "weights")
        of_features = parts.means
        means = {name: _mean(name, sums, known) for name, sums in of_features.items()}
        if means:
            means["task"] = _mean("task", _task_pooled(of_features["pooled"], counts), known)
        return StreamEstimate(found, means, total, self.n_parts)


def _task_pooled(pooled: ClusterSums, counts: Counts) -> ClusterSums:
    """Sums with weight one over the turns of the task, from those with weight one."""
    turns, squares = counts.turns.astype(np.float64), float((1 / counts.turns).sum())
    A, B = pooled.numerators / turns[:, None], pooled.denominators / turns
    return ClusterSums(A, B, counts.tasks, squares)


def _mean(name: str, sums: ClusterSums, known: tuple[int, int]) -> Mean:
    B = float(sums.denominators.sum())
    require_positive(B)
    found = ratio(sums)
    return Mean(found.value, found.standard_error, sums.n_weighted, *known, B**2 / sums.weight_squares, name)


def require_positive(total: float) -> None:
    """Refuse weights that sum to zero."""
    if not total > 0:
        raise DataError("the weights of all turns sum to zero: expected a positive weight somewhere")
