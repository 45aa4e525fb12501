"""Parquet files of TRL (`messages`, or `prompt` with `completion`) and verl (or with `responses`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, Place
from occupancy.importers.messages import episode_of


def read_trl(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file; `text` has no turns and preference pairs have two endings: both are refused."""
    episodes = []
    for row, place in _rows(file):
        if row.get("messages") is not None:
            messages = row["messages"]
        elif row.get("prompt") is not None and row.get("completion") is not None:
            messages = [*_messages(row["prompt"], "user"), *_messages(row["completion"], "assistant")]
        else:
            raise place.refuse(f"columns {', '.join(row)}: expected messages, or prompt and completion")
        episodes.append(episode_of(row, messages, settings, place))
    return episodes


def read_verl(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file; every response to a prompt is one. Entries of `extra_info` count as columns."""
    episodes = []
    for raw, place in _rows(file):
        extra = raw.get("extra_info")
        row = {**extra, **raw} if isinstance(extra, dict) else raw
        if row.get("messages") is not None:
            conversations = [row["messages"]]
        elif row.get("prompt") is not None and row.get("responses") is not None:
            responses = [row["responses"]] if isinstance(row["responses"], str) else row["responses"]
            conversations = [[*row["prompt"], {"role": "assistant", "content": r}] for r in responses]
        else:
            raise place.refuse(f"columns {', '.join(raw)}: expected messages, or prompt and responses")
        episodes += [episode_of(row, messages, settings, place) for messages in conversations]
    return episodes


def _messages(value: Any, role: str) -> list[Any]:
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value)


def _rows(file: Path) -> Iterator[tuple[dict[str, Any], Place]]:
    """Rows as plain objects, with their numbers from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise Place(file, "whole file").refuse(f"not Parquet ({error})") from error
    with parquet:
        rows = (row for batch in parquet.iter_batches(1024) for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield row, Place(file, f"row {number}")
