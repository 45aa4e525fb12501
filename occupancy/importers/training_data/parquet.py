"""Parquet and Arrow files: TRL (messages, prompt with completion), verl (responses), ShareGPT, alpaca.

A struct column has a cell for every field that any row has: a null there is a field that the row lacks, and
is left out. Entries of `extra_info` count as columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.importers.episodes import NO_REWARD, REWARDS, ImportedEpisode, ImportSettings, reward
from occupancy.importers.files import Place, Progress, field_of
from occupancy.importers.messages import said_in
from occupancy.importers.records import episode_of
from occupancy.importers.training_data.lines import answer_of, conversation_of

if TYPE_CHECKING:
    import pyarrow as pa

_TRL = ("trajectory", "prompt", "completion", "extra_info", "data_source", "trace")
_VERL = ("prompt", "responses", "extra_info", "data_source", "trace")


def read_trl(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; `text` has no turns and preference pairs have two endings: both are refused."""
    for raw, place in _rows(file, settings.progress):
        row = _unpacked(raw)
        if {"chosen", "rejected"} & set(row):
            raise place.refuse("a preference pair (chosen, rejected) has two endings: export one of them")
        if row.get("conversations") is not None:
            yield conversation_of(row, settings, place)
            continue
        if {"instruction", "output"} <= set(row) or {"query", "response"} <= set(row):
            yield answer_of(row, settings, place)
            continue
        messages = row.get("messages", row.get("trajectory"))
        if messages is None and row.get("prompt") is not None and row.get("completion") is not None:
            messages = said_in(row, "prompt", "user", place) + said_in(row, "completion", "assistant", place)
        if messages is None:
            raise place.refuse(
                f"columns {', '.join(row)}: expected messages, conversations, prompt and completion, or "
                f"instruction and output"
            )
        yield episode_of(row, messages, settings, place, used=_TRL)


def read_verl(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; every response to a prompt is one, with its own reward where that is a list."""
    for raw, place in _rows(file, settings.progress):
        row = _unpacked(raw)
        if row.get("messages") is not None:
            yield episode_of(row, row["messages"], settings, place, used=_VERL)
        elif row.get("prompt") is not None and row.get("responses") is not None:
            yield from _responses(row, settings, place)
        else:
            raise place.refuse(f"columns {', '.join(raw)}: expected messages, or prompt and responses")


def _responses(row: dict[str, Any], settings: ImportSettings, place: Place) -> Iterator[ImportedEpisode]:
    prompt, responses = said_in(row, "prompt", "user", place), row["responses"]
    responses = [responses] if isinstance(responses, str) else responses
    name = settings.reward or next((n for n in (*REWARDS, "score") if row.get(n) is not None), NO_REWARD)
    rewards = None if name == NO_REWARD else field_of(row, name)
    if name == NO_REWARD or not isinstance(rewards, list):
        rewards = [rewards] * len(responses)
    if len(rewards) != len(responses):
        raise place.refuse(f"{len(rewards)} rewards for {len(responses)} responses: expected one each")
    for response, value in zip(responses, rewards, strict=True):
        R = None if name == NO_REWARD else reward(value, f"field {name!r}", place)
        messages = [*prompt, {"role": "assistant", "content": response}]
        yield episode_of(row, messages, settings, place, used=(*_VERL, name), R=R)


def is_table(head: bytes) -> bool:
    """Whether a file begins like Parquet, an Arrow file, or an Arrow stream (what `datasets` saves)."""
    return head.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"))


def names_of(file: Path) -> set[str]:
    """Names of the columns of a table."""
    with _table(file) as (schema, _, _):
        return set(schema.names)


def _rows(file: Path, progress: Progress | None = None) -> Iterator[tuple[dict[str, Any], Place]]:
    """Rows with their numbers, from 1."""
    number, size = 0, file.stat().st_size
    with _table(file) as (_, batches, rows):
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield _without_nulls(row), Place(file, f"row {number}")
            if progress is not None and rows:
                progress(len(batch) * size // rows)


@contextmanager
def _table(file: Path) -> Iterator[tuple[pa.Schema, Iterable[pa.RecordBatch], int]]:
    """Schema, batches and number of rows (0 where unknown) of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with file.open("rb") as handle:
        head = handle.read(8)
    try:
        if head.startswith(b"PAR1") or not is_table(head):
            with pq.ParquetFile(file) as parquet:
                yield parquet.schema_arrow, parquet.iter_batches(256), parquet.metadata.num_rows
            return
        with pa.memory_map(str(file)) as mapped:
            if head.startswith(b"ARROW1"):
                reader = pa.ipc.open_file(mapped)
                batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
                yield reader.schema, _small(batches), 0
            else:
                stream = pa.ipc.open_stream(mapped)
                yield stream.schema, _small(stream), 0
    except (pa.ArrowInvalid, OSError) as error:
        raise Place(file).refuse(f"not Parquet or Arrow ({error})") from error


def _small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch.slice(at, 256) for batch in batches for at in range(0, len(batch), 256))


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the entries of `extra_info` beside its own, which win."""
    extra = row.get("extra_info")
    return {**extra, **row} if isinstance(extra, dict) else row


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value
