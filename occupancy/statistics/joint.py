"""Counts of turns by length and state, from which pooled and trajectory-uniform occupancies are exact."""

from __future__ import annotations

import numpy as np

from occupancy.kernels.fixed_point import carry, reciprocals
from occupancy.record.errors import DataError
from occupancy.record.types import Int32, Int64
from occupancy.statistics.tallies import Tally

MOST_CELLS = 1 << 22
"""Above this many cells of (T, state) the words of 1/T are summed by state instead."""
WAITING, HELD = 1 << 21, 1 << 30
LONGEST = 1 << 22


class Joint:
    """Counts of turns by (T, state), gathered batch by batch."""

    def __init__(self) -> None:
        self.cells = np.zeros((1, 1), np.int64)
        """[T, S] since they were last turned into words."""
        self.words = np.zeros((3, 1), np.int64)
        """[3, S] counts and the two words of 1/T; see `occupancy.kernels.fixed_point`."""
        self.lengths = np.zeros(1, np.int64)
        """[T] turns of trajectories of each length."""
        self._keys = np.empty(WAITING, np.intp)
        self._waiting = 0
        self._held = 0

    def add(self, states: Int64, T: Int64) -> None:
        """Add turns, each with its state and the length of its trajectory, both at least 0."""
        for begin in range(0, len(states), WAITING):
            s, here = states[begin : begin + WAITING], T[begin : begin + WAITING]
            if self._fits(s, here):
                self._wait(s, np.multiply(here, self.cells.shape[1], dtype=np.int32, casting="unsafe"))
            else:
                self._add_words(s, here)

    def add_trajectories(self, states: Int64, T: Int64) -> None:
        """Add whole trajectories: the states of all turns, and T of each trajectory."""
        if 0 < len(states) <= WAITING and self._fits(states, T):
            row = np.multiply(T, self.cells.shape[1], dtype=np.int32, casting="unsafe")
            self._wait(states, np.repeat(row, T))
        else:
            self.add(states, np.repeat(T, T))

    def _fits(self, states: Int64, T: Int64) -> bool:
        """Whether there are cells for these, after adding some."""
        shape = (int(T.max()) + 1, int(states.max()) + 1)
        if shape[0] > LONGEST:
            raise DataError(f"a trajectory of {shape[0] - 1:,} turns: more than --fast counts; leave it out")
        if shape[0] > self.cells.shape[0] or shape[1] > self.cells.shape[1]:
            self._count()
            wanted = (max(shape[0], self.cells.shape[0]), max(shape[1], self.cells.shape[1]))
            if wanted[0] * wanted[1] > MOST_CELLS:
                return False
            self.cells = _grown(self.cells, wanted)
        return True

    def _wait(self, states: Int64, cell: Int32) -> None:
        """Add at most WAITING turns, given the first cell of each one's length."""
        if self._waiting + len(states) > WAITING:
            self._count()
        key = self._keys[self._waiting : self._waiting + len(states)]
        key[:] = np.add(cell, states, out=cell, casting="unsafe")
        self._waiting += len(states)

    def merge(self, other: Joint) -> None:
        """Add what another one has counted; call its `close` first."""
        self._count()
        shape = tuple(map(max, self.cells.shape, other.cells.shape))
        self.lengths = _sum(self.lengths, other.lengths)
        self.words = _sum_words(self.words, other.words)
        self._held += other._held
        if shape[0] * shape[1] > MOST_CELLS or self._held > HELD:
            self._fold()
            self.cells = np.zeros((1, 1), np.int64)
        shape = tuple(map(max, self.cells.shape, other.cells.shape))
        self.cells = _grown(self.cells, shape)
        self.cells[: other.cells.shape[0], : other.cells.shape[1]] += other.cells

    def renamed(self, states: Int64 | None) -> Joint:
        """The same turns with state s called states[s]; None leaves the names."""
        if states is not None:
            wide = int(states.max(initial=0)) + 1
            for name in ("cells", "words"):
                table = getattr(self, name)
                here = np.zeros((len(table), wide), np.int64)
                known = min(table.shape[1], len(states))
                here[:, states[:known]] = table[:, :known]
                setattr(self, name, here)
        return self

    def close(self) -> None:
        """Count what is buffered and free the buffer."""
        self._count()
        self._keys = np.empty(0, np.intp)

    def tally(self, n_trajectories: int, n_empty: int) -> Tally:
        """Both histograms."""
        self._count()
        self._fold()
        high, low = carry(self.words[1], self.words[2])
        return Tally(self.words[0], high, low, n_trajectories, n_empty)

    def trajectories(self, column: str) -> int:
        """Number of trajectories that the lengths imply: T turns belong to each of length T."""
        self._count()
        turns = self.by_length
        T = np.maximum(np.arange(len(turns)), 1)
        odd = np.flatnonzero(turns % T)
        if len(odd) or turns[0]:
            T_bad = int(odd[0]) if len(odd) else 0
            raise DataError(
                f"column {column!r} says {T_bad} in {turns[T_bad]} rows, not in a multiple of {T_bad}: "
                f"expected in every row the number of rows of its trajectory; leave length= out of "
                f"--columns to count them instead"
            )
        return int((turns // T).sum())

    @property
    def by_length(self) -> Int64:
        """[T] turns of trajectories of each length."""
        return _sum(self.lengths, self.cells.sum(axis=1))

    def _count(self) -> None:
        if self._waiting:
            found = np.bincount(self._keys[: self._waiting], minlength=self.cells.size)
            self.cells += found.reshape(self.cells.shape)
            self._held += self._waiting
            self._waiting = 0
            if self._held > HELD:
                self._fold()

    def _fold(self) -> None:
        """Turn cells into words."""
        turns = self.cells.sum(axis=1)
        used = np.flatnonzero(turns)
        high, low = reciprocals(used)
        words = np.stack([self.cells.sum(axis=0), high @ self.cells[used], low @ self.cells[used]])
        self.words = _sum_words(self.words, words)
        self.lengths = _sum(self.lengths, turns)
        self.cells, self._held = np.zeros_like(self.cells), 0

    def _add_words(self, states: Int64, T: Int64) -> None:
        """At most WAITING turns, so that floats hold the sums exactly."""
        sums = [np.bincount(states), *(np.bincount(states, w) for w in reciprocals(T.astype(np.int64)))]
        self.words = _sum_words(self.words, np.stack(sums).astype(np.int64))
        self.lengths = _sum(self.lengths, np.bincount(T))


def _grown(table: Int64, shape: tuple[int, ...]) -> Int64:
    if table.shape == shape:
        return table
    return np.pad(table, [(0, n - m) for m, n in zip(table.shape, shape, strict=True)])


def _sum(one: Int64, other: Int64) -> Int64:
    wide = max(len(one), len(other))
    return _grown(one, (wide,)) + _grown(other, (wide,))


def _sum_words(one: Int64, other: Int64) -> Int64:
    wide = max(one.shape[1], other.shape[1])
    total = _grown(one, (3, wide)) + _grown(other, (3, wide))
    total[1], total[2] = carry(total[1], total[2])
    return total
