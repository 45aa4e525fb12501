"""Tables of turns larger than memory, read as a stream of parts that hold whole trajectories.

Sources are Parquet files and folders, Arrow IPC files (mapped into memory, so that repeated passes need no
decoding) and run folders. A part has as many rows as the memory setting allows; the last trajectory of a
batch is completed by the next one. A trajectory whose rows are not together is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from occupancy.record.columns import MOST_STATES, Columns, Names, between, ids_of, numbers_of
from occupancy.record.errors import DataError
from occupancy.record.reading import reading
from occupancy.record.types import Int64, Trajectories

MEMORY = 256 << 20
ARROW = (".arrow", ".feather", ".ipc")
ROW_BYTES, TEXT_BYTES = 160, 240
FILES = "expected Parquet, or an Arrow IPC file (not a stream)"


@dataclass
class TurnStream:
    """A table of turns; texts and counts are filled in while it is read."""

    files: list[Path]
    columns: Columns
    memory: int = MEMORY
    """Bytes that the rows of one part may take in all their copies."""
    keep: Callable[[Any], Any] | None = None
    """Applied to every record batch before use."""
    read: list[str] | None = None
    """Columns to read where `keep` makes others from them."""
    states: Names = field(default_factory=Names)
    """Texts of the states, empty where the column holds ids."""
    tasks: Names = field(default_factory=Names)
    trajectories: Names = field(default_factory=Names)
    n_states: int = 0
    n_parts: int = 0

    def parts(self) -> Iterator[Trajectories]:
        """Parts in file order; their state and task ids mean the same throughout."""
        waiting: list[dict[str, Any]] = []
        guard = Together()
        self.n_parts, n_waiting = 0, 0
        for limit, batch in self._batches():
            if n_waiting and n_waiting + batch.num_rows > limit:
                rows = joined(waiting)
                starts = starts_of(rows["trajectory"])
                cut = int(starts[-1])
                if cut:
                    whole = {name: values[:cut] for name, values in rows.items()}
                    yield self._part(whole, starts[:-1], guard)
                waiting = [{name: values[cut:].copy() for name, values in rows.items()}]
                n_waiting -= cut
            if batch.num_rows:
                waiting.append(self.arrays(batch))
                n_waiting += batch.num_rows
        if waiting:
            rows = joined(waiting)
            yield self._part(rows, starts_of(rows["trajectory"]), guard)
        guard.finish()

    def _part(self, rows: dict[str, Any], starts: Int64, guard: Together) -> Trajectories:
        self.n_parts += 1
        guard.see(rows["trajectory"][starts])
        self.n_states = max(self.n_states, int(rows["state"].max()) + 1)
        return to_part(rows, starts, n_states=self.n_states)

    def _batches(self) -> Iterator[tuple[int, Any]]:
        """Record batches, each with the number of rows that a part may have."""
        for file in self.files:
            with reading(file, then=FILES):
                yield from self._batches_of(file)

    def _batches_of(self, file: Path) -> Iterator[tuple[int, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if file.suffix in ARROW:
            with pa.memory_map(str(file)) as source:
                reader = pa.ipc.open_file(source)
                self.columns.require(reader.schema.names, str(file))
                for number in range(reader.num_record_batches):
                    batch = checked(reader.get_batch(number), self.columns.needed)
                    rows = self._rows(reader.schema.field(name) for name in self.columns.needed)
                    for begin in range(0, batch.num_rows, rows):
                        yield rows, self.kept(batch.slice(begin, rows))
            return
        with pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20) as parquet:
            schema = parquet.schema_arrow
            wanted = self.columns.needed if self.read is None else self.read
            self.columns.require(schema.names, str(file), only=wanted)
            rows = self._rows(schema.field(name) for name in wanted)
            for batch in parquet.iter_batches(rows, columns=wanted):
                yield rows, self.kept(batch)

    def kept(self, batch: Any) -> Any:
        """The rows that count."""
        return batch if self.keep is None else self.keep(batch)

    def _rows(self, fields: Iterable[Any]) -> int:
        """Rows of a batch under the memory setting."""
        import pyarrow as pa

        texts = sum(not pa.types.is_primitive(field.type) for field in fields)
        return max(1 << 12, self.memory // (ROW_BYTES + TEXT_BYTES * texts))

    def arrays(self, batch: Any) -> dict[str, Any]:
        """Columns of a batch as numpy arrays of ids and numbers."""
        names, rows = self.columns, {}
        encoders = {"trajectory": self.trajectories, "state": self.states, "task": self.tasks}
        for name, encoder in encoders.items():
            rows[name] = ids_of(batch, getattr(names, name), encoder)
        between(rows["state"], names.state, 0, MOST_STATES)
        if names.weight:
            rows["weight"] = numbers_of(batch, names.weight)
        if names.length:
            rows["length"] = ids_of(batch, names.length, Names())
        if names.feature:
            rows["features"] = np.column_stack([numbers_of(batch, name) for name in names.feature])
        return rows


def checked(batch: Any, names: Sequence[str]) -> Any:
    """The batch's columns of these names, once their offsets and texts are known to lie within the file."""
    batch = batch.select(list(names))
    batch.validate(full=True)
    return batch


def joined(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns one below the other."""
    if len(rows) == 1:
        return rows[0]
    return {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}


def to_part(rows: dict[str, Any], starts: Int64, *, n_states: int | None = None) -> Trajectories:
    """Rows of whole trajectories, which begin at `starts`, as a batch."""
    T = np.diff(starts, append=len(rows["task"]))
    if "length" in rows and (rows["length"] != np.repeat(T, T)).any():
        at = int(np.argmax(rows["length"] != np.repeat(T, T)))
        raise DataError(
            f"the column of lengths is {rows['length'][at]} for a trajectory of {np.repeat(T, T)[at]} rows: "
            f"fix the column, or leave it out of --columns"
        )
    tasks = rows["task"][starts]
    other = rows["task"] != np.repeat(tasks, T)
    if other.any():
        found = np.repeat(tasks, T)[other][0], rows["task"][other][0]
        raise DataError(
            f"a trajectory has two tasks, {found[0]} and {found[1]}: expected one task a trajectory (texts "
            f"are numbered as they appear)"
        )
    return Trajectories(
        np.append(starts, len(rows["state"])),
        rows["state"],
        tasks,
        n_states=n_states,
        features=rows.get("features"),
        weights=rows.get("weight"),
    )


class Together:
    """Finds a trajectory whose rows are not together; consecutive ids, the usual case, take no memory."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.rising = True
        self.last: Any = None

    def see(self, firsts: Any) -> None:
        """First rows of runs of equal values, in order."""
        if not len(firsts):
            return
        values = firsts if self.last is None else np.concatenate([[self.last], firsts])
        self.rising &= bool((values[1:] > values[:-1]).all())
        self.last = values[-1]
        if values.dtype.kind in "iu" and int(firsts[-1]) - int(firsts[0]) == len(firsts) - 1 and self.rising:
            self.seen.append(range(int(firsts[0]), int(firsts[-1]) + 1))
        else:
            self.seen.append(firsts)

    def finish(self) -> None:
        """Refuse what came back; ids that only rise cannot."""
        if self.rising or not self.seen:
            return
        values, counts = np.unique(np.concatenate([np.asarray(s) for s in self.seen]), return_counts=True)
        if counts.max() > 1:
            rows = f"the rows of trajectory {values[counts.argmax()]} are in {counts.max()} places"
            raise DataError(f"{rows}: expected them together; sort the file by trajectory")


def open_turns(source: str | Path, columns: Columns, *, memory: int = MEMORY) -> TurnStream:
    """Stream of a Parquet or Arrow IPC file, or of all such files in a folder, sorted by name.

    Args:
        source: File or folder.
        columns: Names of the columns.
        memory: Bytes for the rows of one part, in all their copies.

    Raises:
        DataError: There is no such file.
    """
    path = Path(source)
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix in _SUFFIXES)
    if not files:
        found = "a folder without such files" if path.is_dir() else "no file there"
        raise DataError(f"{path}: expected a Parquet or Arrow file, or a folder of them; found {found}")
    return TurnStream(files, columns, memory)


_SUFFIXES = (".parquet", ".pq", *ARROW)


def starts_of(values: Any) -> Int64:
    """First row of every run of equal values."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]])) if len(values) else _NONE


_NONE = np.empty(0, np.int64)
