"""A run folder: what costs money or time is written once, append-only, and survives a kill.

    RUN/run.json            versions, hashes, machine, settings; written at the start
    RUN/recipe.toml         the recipe
    RUN/parts/000000/       rows that were finished together: episodes.parquet, turns.parquet, …
    RUN/ledger.sqlite       every attempt (agentloop.ledger.store)

A part is written under another name, synced, and renamed: the rename is the commit, so that a reader
sees all rows of a task or none. `duckdb "select * from 'RUN/parts/*/episodes.parquet'"` works.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from occupancy.record.errors import DataError, RunError
from occupancy.record.recipe import Recipe
from occupancy.record.tables import SCHEMA_VERSION, TABLES, schema

Row = Mapping[str, Any]
_ORDER = (
    "task_id",
    "rollout",
    "proposal",
    "continuation",
    "replicate",
    "kind",
    "K",
    "training_id",
    "attempt",
    "t",
)


_BEGUN = ("lock", "recipe.toml", ".recipe.toml.draft", ".run.json.draft")
"""What a kill before run.json leaves behind."""


@dataclass(frozen=True)
class Run:
    """A run folder on disk."""

    folder: Path
    recipe: Recipe
    info: Mapping[str, Any]
    """run.json."""

    def read(self, table: str, *, columns: Sequence[str] | None = None) -> pa.Table:
        """All committed rows of a table, sorted by key: the same whatever order they were written in."""
        whole = schema(table)
        order = [name for name in _ORDER if name in whole.names]
        needed = whole.names if columns is None else list(dict.fromkeys([*columns, *order]))
        wanted = pa.schema([whole.field(name) for name in needed], whole.metadata)
        files = sorted(self.folder.glob(f"parts/[0-9]*/{table}.parquet"))
        parts = [_read_part(file, table, wanted) for file in files]
        rows = pa.concat_tables(parts) if parts else wanted.empty_table()
        rows = rows.sort_by([(name, "ascending") for name in order])
        return rows if columns is None else rows.select(list(columns))

    def commit(self, rows: Mapping[str, Sequence[Row]]) -> None:
        """Append rows of several tables at once: all of them are there afterwards, or none."""
        tables = {name: table_of(name, part) for name, part in rows.items() if part}
        if tables:
            self.commit_tables(tables)

    def commit_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Like `commit`, for Arrow tables in the run's schemas."""
        parts = self.folder / "parts"
        parts.mkdir(exist_ok=True)
        number = 1 + max((int(p.name) for p in parts.glob("[0-9]*")), default=-1)
        draft = parts / f".draft-{number:06d}"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, table in tables.items():
            file = draft / f"{name}.parquet"
            pq.write_table(table, file, compression="zstd")
            _sync(file)
        _sync(draft)
        os.rename(draft, parts / f"{number:06d}")
        _sync(parts)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it falls with the process, however that dies."""
    with (folder / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"{folder} is being written by another process: wait for it, or name a new folder"
            ) from error
        yield


def create_run(folder: str | Path, recipe: Recipe, info: Mapping[str, Any]) -> Run:
    """Start a run folder; a folder that holds another run, or where one is being started, is refused."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        if (folder / "run.json").exists():
            raise DataError(
                f"{folder} holds a run already: resume it with the same settings, or name a new folder"
            )
        if any(item.name not in _BEGUN for item in folder.iterdir()):
            raise DataError(f"{folder} is not empty and holds no run: name a new folder")
        info = {"recipe_hash": recipe.hash, **info, "schema_version": SCHEMA_VERSION}
        _write(folder / "recipe.toml", recipe.to_toml())
        _write(folder / "run.json", json.dumps(info, indent=2, sort_keys=True) + "\n")
    return Run(folder, recipe, info)


def open_run(folder: str | Path) -> Run:
    """Open a run folder; drafts that a kill left behind are not rows and stay unread."""
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise DataError(
            f"{folder} is no run folder: it has no run.json; make one with `fewsteps collect --out {folder}`"
        )
    try:
        info = json.loads((folder / "run.json").read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{folder}/run.json is not JSON ({error}): restore it, or collect anew") from error
    if not isinstance(info, dict):
        raise DataError(f"{folder}/run.json is no JSON object: restore it, or collect anew")
    version = info.get("schema_version")
    if version not in range(1, SCHEMA_VERSION + 1):
        raise DataError(
            f"{folder} has schema version {version!r}: this fewsteps reads versions 1 to {SCHEMA_VERSION}; "
            f"use the release that wrote it"
        )
    try:
        recipe = Recipe.from_toml((folder / "recipe.toml").read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder}/recipe.toml cannot be read ({error}): restore it") from error
    if recipe.hash != info.get("recipe_hash"):
        raise DataError(
            f"{folder}/recipe.toml has hash {recipe.hash}, but run.json was written for "
            f"{info.get('recipe_hash')}: restore the recipe, or collect into a new folder"
        )
    return Run(folder, recipe, info)


def compact(source: Run, folder: str | Path) -> Run:
    """Copy a run's rows into a new folder as one part, sorted by key."""
    target = create_run(folder, source.recipe, source.info)
    tables = {name: source.read(name) for name in TABLES}
    target.commit_tables({name: rows for name, rows in tables.items() if len(rows)})
    return target


def table_of(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table in the table's schema; a missing, unknown or wrong value is named."""
    wanted = schema(name)
    for row in rows:
        if set(row) != set(wanted.names):
            missing, unknown = sorted(set(wanted.names) - set(row)), sorted(set(row) - set(wanted.names))
            raise DataError(
                f"a row of {name} lacks {missing} and has unknown {unknown}: see occupancy/record/tables.py"
            )
    try:
        table = pa.Table.from_pylist(list(rows), schema=wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"a row of {name} does not fit its schema: {error}") from error
    for column in wanted:
        if not column.nullable and table[column.name].null_count:
            raise DataError(f"column {column.name} of {name} has an empty cell: it may not be empty")
    return table


def _read_part(file: Path, table: str, wanted: pa.Schema) -> pa.Table:
    """A part's rows; columns that its schema version did not have yet are empty."""
    try:
        version = int((pq.read_schema(file).metadata or {}).get(b"fewsteps", SCHEMA_VERSION))
        later = {c.name for c in TABLES[table] if c.since > version}
        names = [name for name in wanted.names if name not in later]
        rows = pq.read_table(file, columns=names, partitioning=None)
        for name in later & set(wanted.names):
            rows = rows.append_column(name, pa.nulls(len(rows), wanted.field(name).type))
        return rows.select(wanted.names).cast(wanted)
    except (pa.ArrowInvalid, KeyError, ValueError, OSError) as error:
        raise DataError(f"{file} cannot be read ({error}): restore the file") from error


def _write(file: Path, text: str) -> None:
    draft = file.with_name(f".{file.name}.draft")
    draft.write_text(text, "utf-8")
    _sync(draft)
    os.replace(draft, file)
    _sync(file.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
