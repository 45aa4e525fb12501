"""Passages, and the collection of them that is searched: read from Parquet or JSON lines, kept as Arrow.

JSON lines are those of Search-R1's wiki-18: {"id": "0", "contents": "\\"Title\\"\\ntext"}, with `title`
and `text` used where they are separate fields. The stored file is memory-mapped, so a corpus may be larger
than memory.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading

BLOCK = 50_000
"""Passages held as Python objects at a time while a file is read."""


def tell(stage: str, done: int) -> None:
    """How far an index is, on standard error where that is a terminal; a log file gets none."""
    if sys.stderr.isatty():
        sys.stderr.write(f"index: {stage}, {done:,} passages\n")


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph, and how well it answers a query."""

    doc_id: str
    title: str
    text: str
    score: float | None = None
    """The retriever's own measure, where it gives one."""


def split_contents(contents: str) -> tuple[str, str]:
    """Title and text of a `contents` field: the title is its first line, without wiki-18's quotes."""
    title, _, text = contents.partition("\n")
    if len(title) > 1 and title[0] == title[-1] == '"':
        title = title[1:-1]
    return title, text


def join_contents(passage: Passage) -> str:
    """The `contents` field of a passage, as wiki-18 writes it."""
    return f'"{passage.title}"\n{passage.text}'


class Corpus:
    """Passages by their number, from 0."""

    def __init__(self, file: Path) -> None:
        import pyarrow as pa

        with pa.memory_map(str(file)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
        self._columns = tuple(table[name] for name in ("id", "title", "text"))

    def __len__(self) -> int:
        return len(self._columns[0])

    def passage(self, number: int, *, score: float | None = None) -> Passage:
        """One passage."""
        doc_id, title, text = (column[number].as_py() for column in self._columns)
        return Passage(doc_id, title, text, score)

    def indexed(self) -> list[str]:
        """The text that is indexed for each passage: title, line break, text."""
        _, titles, texts = (column.to_pylist() for column in self._columns)
        return [f"{title}\n{text}" for title, text in zip(titles, texts, strict=True)]


def store(files: Sequence[Path], target: Path) -> str:
    """Write the passages of `files`, in order, as one Arrow file; the SHA-256 over them, 16 hex digits."""
    import pyarrow as pa

    columns = ("id", "title", "text")
    schema = pa.schema([(name, pa.large_string()) for name in columns])
    digest, done = hashlib.sha256(), 0
    passages = (passage for file in files for passage in read_passages(file))
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        while block := list(islice(passages, BLOCK)):
            rows = [(p.doc_id, p.title, p.text) for p in block]
            digest.update("".join(f"{i}\x1f{title}\x1f{text}\x1e" for i, title, text in rows).encode())
            arrays = [pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            done += len(block)
            tell("read", done)
    if not done:
        raise DataError(f"{', '.join(map(str, files))}: no passage in it; expected at least one")
    return digest.hexdigest()[:16]


def read_passages(file: Path) -> Iterator[Passage]:
    """Passages of a .parquet or .jsonl file, one at a time; DataError where it is damaged."""
    readers = {".parquet": _parquet, ".jsonl": _jsonl, ".json": _jsonl}
    if file.suffix not in readers:
        raise InputError(f"corpus {file}: expected a .parquet file, or .jsonl as Search-R1's wiki-18")
    with reading(f"corpus {file}", then="expected the passages of a corpus"):
        yield from readers[file.suffix](file)


def _parquet(file: Path) -> Iterator[Passage]:
    import pyarrow.parquet as pq

    table, columns = pq.ParquetFile(file), ["doc_id", "title", "text"]
    if missing := sorted(set(columns) - set(table.schema_arrow.names)):
        raise DataError(f"corpus {file} has no column {missing[0]}: expected {', '.join(columns)}")
    for batch in table.iter_batches(columns=columns):
        for row in batch.to_pylist():
            yield Passage(str(row["doc_id"]), row["title"], row["text"])


def _jsonl(file: Path) -> Iterator[Passage]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if not line.strip():
                continue
            try:
                yield _from_json(json.loads(line), number)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(
                    f"{file}, line {number + 1}: no passage ({type(error).__name__}: {error}); expected "
                    f'{{"id": ..., "contents": "title, line break, text"}}'
                ) from error


def _from_json(row: dict[str, Any], number: int) -> Passage:
    if "title" in row and "text" in row:
        return Passage(str(row.get("id", number)), row["title"].strip('"'), row["text"])
    return Passage(str(row.get("id", number)), *split_contents(row["contents"]))
