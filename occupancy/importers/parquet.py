"""Rows of Parquet files as plain objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import Place


def parquet_rows(file: Path) -> Iterator[tuple[dict[str, Any], Place]]:
    """Rows with their numbers, from 1."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise Place(file, "whole file").refuse(f"not Parquet ({error})") from error
    number = 0
    with parquet:
        for batch in parquet.iter_batches(1024):
            for row in batch.to_pylist():
                number += 1
                yield row, Place(file, f"row {number}")


def unpacked(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the entries of `extra_info` beside its own, which win."""
    extra = row.get("extra_info")
    return {**extra, **row} if isinstance(extra, dict) else row
