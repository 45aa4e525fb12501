"""Column names of a table of turns, and the conversion of text to ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from occupancy.record.errors import DataError
from occupancy.record.specs import settings
from occupancy.record.types import Int64, exact_floats

MOST_STATES = 1 << 26


@dataclass(frozen=True)
class Columns:
    """Column names of a table with one row a turn, the rows of a trajectory together and in order."""

    trajectory: str = "trajectory"
    """Changes where a new trajectory begins: whole numbers or text."""
    state: str = "state"
    """State of the context before the turn: ids from 0 up, or text."""
    task: str = "task"
    """Cluster of the standard errors: whole numbers or text."""
    weight: str = ""
    """w_t(tau), empty for none."""
    length: str = ""
    """T of the row's trajectory, empty where it is counted from the rows; see `occupancy.streaming.scan`."""
    feature: tuple[str, ...] = ()
    """Numbers to average."""

    @classmethod
    def parse(cls, text: str, *, base: Columns | None = None) -> Columns:
        """Columns from 'trajectory=episode,state=cell,feature=reward,feature=tokens'."""
        items = filter(None, text.split(","))
        chosen = settings(cls, items, of="--columns")
        return cls(**chosen) if base is None else replace(base, **chosen)

    @property
    def needed(self) -> list[str]:
        """Every column to read, once."""
        named = (self.trajectory, self.state, self.task, self.weight, self.length, *self.feature)
        return list(dict.fromkeys(name for name in named if name))

    def require(self, present: Sequence[str], where: str, *, only: Sequence[str] | None = None) -> None:
        """Refuse a table without a needed column, or without one of `only`."""
        for name in self.needed if only is None else only:
            if (many := [*present].count(name)) > 1:
                raise DataError(f"{where} has {many} columns {name!r}: rename one of them")
            if not many:
                raise DataError(
                    f"{where} has no column {name!r}, only {', '.join(present)}: map names with --columns "
                    f"trajectory=..,state=..,task=.."
                )


class Names:
    """Ids in order of first appearance, for text values."""

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}

    def number(self, codes: Int64, values: Sequence[Hashable]) -> Int64:
        """Ids of values[codes]."""
        ids = [self.ids.setdefault(value, len(self.ids)) for value in values]
        return np.array(ids, np.int64)[codes]

    def lookup(self, texts: Sequence[Hashable]) -> Int64 | None:
        """Ids here of texts that another `Names` numbered; None if it is empty, because the data hold ids."""
        return self.number(np.arange(len(texts)), texts) if texts else None

    @property
    def in_order(self) -> list[Hashable]:
        """Value of each id."""
        return list(self.ids)


def ids_of(batch: Any, column: str, names: Names) -> Any:
    """Whole numbers as they are, texts by their number in `names`."""
    import pyarrow as pa

    values = _full(batch, column)
    if pa.types.is_integer(values.type):
        return _plain(values)
    coded = pa.types.is_dictionary(values.type)
    kind = values.type.value_type if coded else values.type
    if kind not in (pa.string(), pa.large_string(), pa.string_view()) and not pa.types.is_integer(kind):
        raise DataError(f"column {column!r} has type {values.type}: expected whole numbers or text")
    if not coded:
        values = values.dictionary_encode()
    codes = _plain(values.indices).astype(np.int64)
    try:
        texts = values.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"column {column!r} holds a text that is no UTF-8 ({error}): fix it") from error
    if None in texts and texts.index(None) in codes:
        raise DataError(f"column {column!r} has an empty cell, in its dictionary: fill it, or drop its rows")
    return names.number(codes, texts)


def between(values: Any, column: str, least: int, top: int) -> Any:
    """The values; ids and lengths outside of what can be counted are refused."""
    if len(values) and (values.min() < least or values.max() >= top):
        raise DataError(
            f"column {column!r} holds {values.min()} to {values.max()}: expected whole numbers from {least} "
            f"up, below {top}; give hashes as text"
        )
    return values


def numbers_of(batch: Any, column: str) -> Any:
    """Numbers of a column without empty cells, in the float32 or float64 that holds them exactly."""
    import pyarrow as pa

    values = _full(batch, column)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        raise DataError(f"column {column!r} has type {values.type}: expected numbers")
    return exact_floats(f"column {column!r}", _plain(values))


def _plain(values: Any) -> Any:
    """Values without empty cells, not copied; pyarrow's own conversion would load pandas."""
    data = np.frombuffer(values.buffers()[1], values.type.to_pandas_dtype())
    return data[values.offset : values.offset + len(values)]


def _full(batch: Any, column: str) -> Any:
    """A column; one with an empty cell is refused."""
    values = batch.column(column)
    if values.null_count:
        row = values.is_null().to_pylist().index(True)
        raise DataError(f"column {column!r} has an empty cell in row {row} of a batch: fill it, or drop it")
    return values
