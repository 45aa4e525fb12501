"""Occupancies of a Parquet or Arrow table by several threads, without standard errors (`--fast`).

Only `(trajectory, state)` is read, and T is counted from the ids: rows of a trajectory that are not together
are refused. If `Columns.length` names a column with T in every row, only `(T, state)` is read; the lengths
are then not verified, except that each length L must occur in a multiple of L rows. Tasks are not read, so
there are no standard errors. `occupancy.streaming.estimate` reads and checks everything.

Units of work are runs of row groups and depend on the file alone. Counts are whole numbers, and weights are
summed by unit in file order, so that any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from occupancy.kernels.chunks import Total, count_workers, in_order
from occupancy.kernels.columns import Turns
from occupancy.kernels.fixed_point import carry
from occupancy.record.columns import MOST_STATES, Columns, Names, between, ids_of, numbers_of
from occupancy.record.errors import DataError
from occupancy.record.reading import reading
from occupancy.record.types import Float64, Int32, Int64, refuse_weights
from occupancy.statistics.exact import Occupancy
from occupancy.statistics.tallies import Tally
from occupancy.streaming.estimate import StreamEstimate, require_positive
from occupancy.streaming.partial import with_part
from occupancy.streaming.stream import ARROW, FILES, MEMORY, Together, checked, open_turns

UNIT_ROWS, MOST_ROWS = 1 << 22, 1 << 18
ROW_BYTES, TEXT_BYTES = 48, 240
LONGEST = 1 << 22
"""A stored length is below it."""


@dataclass(frozen=True)
class RowGroups:
    """One unit of work: row groups first .. last - 1 of a file."""

    file: Path
    first: int
    last: int


class Sums:
    """Turns and their 1/T by state, and turns by T: whole numbers, so that parts add up exactly."""

    def __init__(self) -> None:
        self.table = np.zeros((0, 3), np.int64)
        """[S, 3] counts and the two words of 1/T; see `occupancy.kernels.fixed_point`."""
        self.by_length = np.zeros(0, np.int64)
        """[T] turns of trajectories of each length."""

    def add(self, states: Int32, T: Int64) -> None:
        """Add turns, each with its state and the length of its trajectory."""
        from occupancy.kernels.sums import tally_turns

        if len(states):
            self._grow(int(states.max()) + 1, int(T.max()) + 1)
            tally_turns(states, T, self.table)
            self._count(np.bincount(T))

    def add_trajectories(self, states: Int32, T: Int64) -> None:
        """Add whole trajectories: the states of all turns, and T of each trajectory."""
        from occupancy.kernels.sums import tally

        self._grow(int(states.max()) + 1, int(T.max()) + 1)
        tally(Turns(np.concatenate([[0], np.cumsum(T)]), states), self.table)
        many = np.bincount(T)
        self._count(many * np.arange(len(many)))

    def merge(self, other: Sums, names: Int64 | None) -> None:
        """Add another one's sums, where its state s is called names[s] here; None: s."""
        S = len(other.table)
        states = np.arange(S) if names is None else names[:S]
        self._grow(int(states.max(initial=-1)) + 1, len(other.by_length))
        self.table[states] += other.table
        self._count(other.by_length)

    def tally(self, n_trajectories: int) -> Tally:
        """Both histograms."""
        counts, high, low = self.table.T
        return Tally(counts, high, low, n_trajectories, 0)

    def trajectories(self, column: str) -> int:
        """Number of trajectories that the lengths imply: T turns belong to each of length T."""
        turns, T = self.by_length, np.maximum(np.arange(len(self.by_length)), 1)
        odd = np.flatnonzero(turns % T)
        if len(odd):
            raise DataError(
                f"column {column!r} says {odd[0]} in {turns[odd[0]]} rows, not in a multiple of {odd[0]}: "
                f"expected in every row the number of rows of its trajectory; leave length= out of "
                f"--columns to count them instead"
            )
        return int((turns // T).sum())

    def _grow(self, S: int, L: int) -> None:
        self.table = np.pad(self.table, [(0, max(0, S - len(self.table))), (0, 0)])
        self.by_length = np.pad(self.by_length, (0, max(0, L - len(self.by_length))))

    def _count(self, turns: Int64) -> None:
        self.by_length[: len(turns)] += turns
        self.table[:, 1], self.table[:, 2] = carry(self.table[:, 1], self.table[:, 2])


@dataclass(frozen=True)
class Scanned:
    """What a unit holds."""

    sums: Sums
    """Of all runs but the first and the last."""
    runs: Any
    """Trajectory of every run of rows, as the file names it; empty where T is stored."""
    edges: tuple[Int64, Int64]
    """States of the first and of the last run, which neighbours may continue; a run alone is the first."""
    states: list[Any]
    """Texts of the states by id, empty for ids."""
    weighted: Float64
    """[S] sums of weights, empty without."""
    weight_squares: float


def scan_table(
    source: str | Path, columns: Columns, *, memory: int = MEMORY, workers: int | None = None
) -> tuple[StreamEstimate, list[Any]]:
    """Occupancies without standard errors of a Parquet or Arrow table, and the texts of its states.

    Args:
        source: A file, or a folder of files.
        columns: Trajectory (or length), state and weight are read; tasks and features are not.
        memory: Bytes for rows.
        workers: Threads; the result has the same bits for any number.

    Raises:
        DataError: The rows of a trajectory are not together, or lengths or weights are impossible.
    """
    files = open_turns(source, columns).files
    units = row_groups(files, UNIT_ROWS)
    each = memory // count_workers(workers)

    def work(unit: int, _: int) -> Scanned:
        with reading(units[unit].file, then=FILES):
            return scan_unit(units[unit], columns, each)

    return _merged(in_order(work, np.arange(len(units) + 1), workers=workers), columns)


def row_groups(files: Sequence[Path], rows: int) -> list[RowGroups]:
    """Runs of row groups of at most so many rows, at least one group a unit."""
    units: list[RowGroups] = []
    for file in files:
        first, held = 0, 0
        sizes = _group_rows(file)
        for group, n in enumerate(sizes):
            if held and held + n > rows:
                units.append(RowGroups(file, first, group))
                first, held = group, 0
            held += n
        if held:
            units.append(RowGroups(file, first, len(sizes)))
    return units


def _group_rows(file: Path) -> list[int]:
    """Rows of each row group of a Parquet file, or of each record batch of an Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(file, then=FILES):
        if file.suffix in ARROW:
            with pa.memory_map(str(file)) as source:
                reader = pa.ipc.open_file(source)
                return [reader.get_batch(n).num_rows for n in range(reader.num_record_batches)]
        metadata = pq.read_metadata(file)
        return [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]


def scan_unit(unit: RowGroups, columns: Columns, memory: int) -> Scanned:
    """Counts of one unit, with about so many bytes of rows at a time."""
    sums, states, runs = Sums(), Names(), Runs()
    weighted, squares = Total(0), 0.0
    wanted = [columns.length or columns.trajectory, columns.state, *filter(None, [columns.weight])]
    for batch in batches_of(unit, columns, wanted, memory):
        ids = ids_of(batch, columns.state, states)
        s = between(ids, columns.state, 0, MOST_STATES).astype(np.int32, copy=False)
        if columns.length:
            lengths = between(ids_of(batch, columns.length, Names()), columns.length, 1, LONGEST)
            sums.add(s, lengths.astype(np.int64, copy=False))
        else:
            runs.add(ids_of(batch, columns.trajectory, runs.names), s, sums)
        if columns.weight:
            w = numbers_of(batch, columns.weight).astype(np.float64)
            refuse_weights(w, f"column {columns.weight!r}, ")
            weighted = with_part(weighted, np.bincount(s, w).astype(np.float64))
            squares += float(w @ w)
    edges = runs.close(sums)
    return Scanned(sums, runs.firsts, edges, states.in_order, weighted.value, squares)


class Runs:
    """Rows of one trajectory after the other; a run ends where the next begins."""

    def __init__(self) -> None:
        self.names = Names()
        self._ids: list[Any] = []
        self._open: list[Any] = []
        self._short: list[Any] = []
        self._first: Any = None
        self._last: Any = None

    def add(self, ids: Any, states: Any, sums: Sums) -> None:
        """Rows in file order."""
        if not len(ids):
            return
        starts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        continues = self._last is not None and self._last == ids[0]
        if self._open and not continues:
            self._end()
        self._last = ids[-1]
        self._ids.append(ids[starts] if continues else ids[np.concatenate([[0], starts])])
        if not len(starts):
            self._open.append(states.copy())
            return
        self._open.append(states[: starts[0]].copy())
        self._end()
        self._open = [states[starts[-1] :].copy()]
        if len(starts) > 1:
            sums.add_trajectories(states[starts[0] : starts[-1]], np.diff(starts))

    def _end(self) -> None:
        run, self._open = np.concatenate(self._open), []
        if self._first is None:
            self._first = run
        else:
            self._short.append(run)

    def close(self, sums: Sums) -> tuple[Int64, Int64]:
        """Counts what ended; the first and the last run are left."""
        none = np.empty(0, np.int64)
        if not self._ids:
            return none, none
        last = np.concatenate(self._open)
        if self._first is None:
            return last, none
        if self._short:
            T = np.array([len(run) for run in self._short])
            sums.add_trajectories(np.concatenate(self._short), T)
        return self._first, last

    @property
    def firsts(self) -> Any:
        """Trajectory of each run, as the file names it."""
        codes = np.concatenate(self._ids) if self._ids else np.empty(0, np.int64)
        texts = self.names.in_order
        return np.array(texts, object)[codes] if texts else codes


def batches_of(unit: RowGroups, columns: Columns, wanted: Sequence[str], memory: int) -> Iterator[Any]:
    """Record batches of a unit, with about so many bytes of rows each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def rows_of(schema: Any) -> int:
        columns.require(schema.names, str(unit.file), only=wanted)
        texts = sum(not pa.types.is_primitive(schema.field(name).type) for name in wanted)
        return min(MOST_ROWS, max(1 << 12, memory // (ROW_BYTES + TEXT_BYTES * texts)))

    if unit.file.suffix in ARROW:
        with pa.memory_map(str(unit.file)) as source:
            reader = pa.ipc.open_file(source)
            rows = rows_of(reader.schema)
            for group in range(unit.first, unit.last):
                whole = checked(reader.get_batch(group), wanted)
                yield from (whole.slice(begin, rows) for begin in range(0, whole.num_rows, rows))
        return
    with pq.ParquetFile(unit.file, pre_buffer=False) as parquet:
        rows = rows_of(parquet.schema_arrow)
        for group in range(unit.first, unit.last):
            yield from parquet.iter_batches(rows, row_groups=[group], columns=list(wanted), use_threads=False)


def _merged(units: Iterator[Scanned], columns: Columns) -> tuple[StreamEstimate, list[Any]]:
    total, states, guard = Sums(), Names(), Together()
    weighted, squares, n_runs = Total(0), 0.0, 0
    waiting: list[Any] = []
    last: Any = None
    for unit in units:
        lookup = states.lookup(unit.states)
        total.merge(unit.sums, lookup)
        if columns.weight:
            w = unit.weighted
            if lookup is not None:
                w = np.bincount(lookup, w, minlength=len(states.ids)).astype(np.float64)
            weighted = with_part(weighted, w)
            squares += unit.weight_squares
        if not len(unit.runs):
            continue
        first, end = (edge if lookup is None else lookup[edge] for edge in unit.edges)
        continues = last is not None and bool(last == unit.runs[0])
        guard.see(unit.runs[1:] if continues else unit.runs)
        n_runs += len(unit.runs) - continues
        if last is not None and not continues:
            _add_run(total, waiting)
        waiting = [*waiting, first] if continues else [first]
        if len(unit.runs) > 1:
            _add_run(total, waiting)
            waiting = [end]
        last = unit.runs[-1]
    guard.finish()
    if waiting:
        _add_run(total, waiting)
    n = total.trajectories(columns.length) if columns.length else n_runs
    if not n:
        raise DataError("the source has no rows: expected a turn at least")
    tally = total.tally(n)
    turns, T = total.by_length, np.maximum(np.arange(len(total.by_length)), 1)
    found = {
        "pooled": (tally.pooled, float(tally.counts.sum())),
        "trajectory": (tally.trajectory, n**2 / float((turns / T**2).sum())),
    }
    if columns.weight:
        B = float(weighted.value.sum())
        require_positive(B)
        found["weights"] = (weighted.value / B, B**2 / squares)
    occupancies = {name: Occupancy(p, None, 0, n, 0, ess, name) for name, (p, ess) in found.items()}
    return StreamEstimate(occupancies, {}, tally, 0), states.in_order


def _add_run(total: Sums, parts: list[Any]) -> None:
    states = np.concatenate(parts)
    total.add_trajectories(states, np.array([len(states)]))
