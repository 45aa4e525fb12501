"""Counts of turns by task and state, for standard errors by state of data in parts.

Counts and the fixed-point words of 1/T are whole numbers, so cells of parts add up to the cells of the
whole, in any order and bit for bit. Sums of weights are floats and add up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from occupancy.kernels.columns import Totals
from occupancy.kernels.fixed_point import ONE, carry, reciprocals, to_float
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.exact import Counts, Occupancy
from occupancy.statistics.spread import residuals_of_cells
from occupancy.statistics.tallies import Tally

CELL_BYTES = 160
"""A cell takes 48 bytes; while cells are joined they are there twice, with keys, beside a part's."""


@dataclass(frozen=True)
class Cells:
    """One row a pair of task and state that occurs, rising by task and then by state."""

    task: Int64
    state: Int64
    count: Int64
    """Turns."""
    high: Int64
    """Sum of 1/T, upper word."""
    low: Int64
    """Lower word, not carried."""
    weight: Float64
    """Sum of the weights; zeros where there are none."""

    def __len__(self) -> int:
        return len(self.task)


def cells_of(part: Trajectories) -> Cells:
    """Cells of a batch."""
    tasks, task = np.unique(part.tasks, return_inverse=True)
    lengths, length = np.unique(part.lengths, return_inverse=True)
    S, L = part.n_states, len(lengths)
    # Sorting keys with T in them is several times faster than sorting positions.
    owner = np.repeat(task.astype(np.int64) * (S * L) + length, part.lengths)
    keys, count = np.unique(owner + part.states.astype(np.int64) * L, return_counts=True)
    high, low = reciprocals(lengths[keys % L])
    pairs = keys // L
    starts = np.flatnonzero(np.diff(pairs, prepend=-1))
    counted, upper, lower = (np.add.reduceat(column, starts) for column in (count, count * high, count * low))
    pairs = pairs[starts]
    weight = np.zeros(len(pairs))
    if part.weights is not None:
        cell = np.searchsorted(pairs, np.repeat(task * S, part.lengths) + part.states)
        weight = np.bincount(cell, part.weights, minlength=len(pairs)).astype(np.float64)
    return Cells(tasks[pairs // S].astype(np.int64), pairs % S, counted, upper, lower, weight)


def merged(parts: Sequence[Cells]) -> Cells:
    """All cells as one table."""
    if len(parts) == 1:
        return parts[0]
    task, state = (np.concatenate([getattr(p, name) for p in parts]) for name in ("task", "state"))
    order = np.lexsort((state, task))
    task, state = task[order], state[order]
    starts = np.flatnonzero((np.diff(task, prepend=-1) != 0) | (np.diff(state, prepend=-1) != 0))
    task, state = task[starts], state[starts]
    sums = []
    for name in ("count", "high", "low", "weight"):
        column = np.concatenate([getattr(p, name) for p in parts])[order]
        sums.append(np.add.reduceat(column, starts) if len(starts) else column)
    return Cells(task, state, *sums)


def renamed(cells: Cells, states: Int64 | None, tasks: Int64 | None) -> Cells:
    """The same cells under other ids; None leaves them."""
    found = replace(
        cells,
        task=cells.task if tasks is None else tasks[cells.task],
        state=cells.state if states is None else states[cells.state],
    )
    return found if states is None and tasks is None else merged([found, _NONE])


def occupancy_of_cells(counts: Counts, total: Tally, cells: Cells | None, convention: str) -> Occupancy:
    """`exact_occupancy` from sums of parts, with the same bits; without cells no errors by state."""
    weights, known = counts.weights(convention), (total.n_trajectories, total.n_empty)
    sums = total.counts.astype(np.float64) if weights == "pooled" else total.inverse_lengths
    if cells is None:
        return counts.occupancy(convention, sums, None, known)
    sizes = np.bincount(np.searchsorted(counts.tasks, cells.task), minlength=len(counts.tasks))
    high, low = cells.high, cells.low
    if weights != "trajectory":
        word = (np.array([ONE]), np.array([0])) if weights == "pooled" else reciprocals(counts.turns)
        high, low = (cells.count * (w if len(w) == 1 else np.repeat(w, sizes)) for w in word)
    if weights == "task":
        uppers, lowers = np.zeros((2, len(total.counts)), np.int64)
        for begin in range(0, len(cells.state), _BLOCK):
            rows = slice(begin, begin + _BLOCK)
            np.add.at(uppers, cells.state[rows], high[rows])
            np.add.at(lowers, cells.state[rows], low[rows])
            uppers, lowers = carry(uppers, lowers)
        sums = to_float(uppers, lowers)
    mass = counts.mass(weights)
    ratio = Totals(mass, sums / float(mass.sum()))
    spread = residuals_of_cells(to_float(high, low), cells.state, sizes, ratio, counts.turns)
    return counts.occupancy(convention, sums, spread, known)


_BLOCK = 1 << 20
_EMPTY = np.empty(0, np.int64)
_NONE = Cells(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, np.empty(0))
