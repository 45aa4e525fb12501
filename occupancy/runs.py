"""A run folder: what costs money or time is written once, append-only, and survives a kill.

    RUN/run.json            versions, hashes, machine, settings; written at the start
    RUN/recipe.toml         the recipe
    RUN/parts/000000/       rows that were committed together: episodes.parquet, turns.parquet, …
    RUN/parts/000000/part.json   number of the part, schema version, tables with their row counts
    RUN/ledger.sqlite       every attempt (agentloop.ledger.store)

A part is written as a draft, synced, and renamed: the rename is the commit, so that a reader sees all
rows of a task or none. Every reader goes through `Run.files`, which refuses a copied part, a part that lost a
table or rows, and a part of a later version.

    run = create_run("RUN", preset("op-short"), {"kind": "pilot"})
    run.commit({"episodes": [..], "turns": [..]})
    open_run("RUN").read("episodes", columns=["episode_id", "R"])
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from occupancy.record.drafts import open_file, sync, sync_one, whole_folder, write_whole
from occupancy.record.errors import DataError, InputError, RecipeError, RunError, one_of
from occupancy.record.reading import read_json, reading
from occupancy.record.recipe import Recipe, hash_of
from occupancy.record.rows import KEY
from occupancy.record.show import say
from occupancy.record.shows import Shown, Shows
from occupancy.record.specs import Size, check_entries
from occupancy.record.tables import SCHEMA_VERSION, TABLES, schema

_ORDER = (*KEY, "kind", "K", "training_id", "attempt", "t")
_PART = {"part": Size, "schema_version": Size, "rows": Mapping[str, Any]}
"""What a part's list says of it; `rows` by table."""
_BEGUN = ("lock", "recipe.toml", ".recipe.toml.draft", ".run.json.draft")
"""What a kill before run.json leaves behind."""
_LIST = "part.json"
_DRAFT, PLAYED_AGAIN = ".draft-", ".played-again-"
"""Names of a part that is being written, and of nothing: a lost part, whose episodes are played again."""
_TOLD: set[str] = set()
"""What was said of lost parts: a line a run, and MOST_TOLD lines in all."""
MOST_TOLD = 3
_LISTED_SINCE = 3
"""Schema version from which every part has a list of its tables."""


@dataclass(frozen=True)
class Run(Shows):
    """A run folder on disk."""

    folder: Path
    recipe: Recipe
    info: Mapping[str, Any]
    """run.json."""

    def read(self, table: str, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Committed rows of a table, all columns or some, sorted by key, whatever order they were written in.

        Raises:
            DataError: A part cannot be read, is incomplete or of a later version, or an episode occurs twice.
            InputError: There is no such table, or it has no such column.
        """
        one_of(TABLES, table=table)
        whole = schema(table)
        if unknown := set(columns or ()) - set(whole.names):
            raise InputError(f"column {min(unknown)!r} of table {table!r}: expected {', '.join(whole.names)}")
        order = [name for name in _ORDER if name in whole.names]
        unique = ["episode_id"] if table == "episodes" else []
        needed = whole.names if columns is None else list(dict.fromkeys([*columns, *order, *unique]))
        wanted = pa.schema([whole.field(name) for name in needed], whole.metadata)
        parts = [_read_part(file, table, wanted) for file in self.files(table)]
        rows = pa.concat_tables(parts) if parts else wanted.empty_table()
        rows = rows.sort_by([(name, "ascending") for name in order])
        if unique:
            self._refuse_twice(rows["episode_id"])
        return rows if columns is None else rows.select(list(columns))

    def column(self, table: str, name: str) -> list[Any]:
        """One column of `read`, as a list."""
        return list(self.read(table, columns=[name])[name].to_pylist())

    def files(self, table: str) -> list[Path]:
        """Parquet files of a table, one a part that has rows of it; raises DataError as `read` does."""
        found = []
        for part in sorted(self.folder.glob("parts/[0-9]*")):
            rows = self._listed(part).get(table)
            file = part / f"{table}.parquet"
            if rows is None:
                continue
            with reading(file, then="restore the file"):
                footer = pq.read_metadata(file)
                version = int((footer.metadata or {}).get(b"fewsteps", SCHEMA_VERSION))
            _refuse_version(file, version)
            if rows not in (footer.num_rows, -1):
                raise DataError(f"{file} has {footer.num_rows} rows, but {_LIST} says {rows}: restore it")
            found.append(file)
        return found

    def _listed(self, part: Path) -> dict[str, int]:
        """Row count of each table of a part; -1 in parts of old runs, which list nothing."""
        present = {file.stem for file in part.glob("*.parquet")}
        if not (part / _LIST).exists() and self.info.get("schema_version", SCHEMA_VERSION) < _LISTED_SINCE:
            return dict.fromkeys(present, -1)
        listed = read_json(part / _LIST, then="restore the part")
        check_entries(listed, _PART, of=f"{part / _LIST}")
        rows: dict[str, int] = listed["rows"]
        check_entries(rows, dict.fromkeys(rows, Size), of=f"{part / _LIST}")
        _refuse_version(part, listed["schema_version"])
        if (number := f"{listed['part']:06d}") != part.name:
            raise DataError(f"{part} is a copy of part {number}: its rows would count twice; remove it")
        if lost := sorted(set(rows) - present):
            raise DataError(f"{part} has lost {lost[0]}.parquet, which {_LIST} lists: restore the part")
        if unlisted := sorted(present - set(rows)):
            raise DataError(f"{part} has {unlisted[0]}.parquet, which {_LIST} does not list: remove the file")
        return rows

    def lost(self) -> list[str]:
        """Names of parts that are not there, though later ones are, and that nobody has taken back."""
        names = [part.name for part in self.folder.glob("parts/*") if not part.name.startswith(_DRAFT)]
        numbers = {int(found[0]) for name in names if (found := re.search(r"\d{6}", name))}
        return [f"{number:06d}" for number in sorted(set(range(max(numbers, default=0))) - numbers)]

    def _refuse_twice(self, ids: pa.ChunkedArray) -> None:
        """Refuse episodes that occur twice: their turns would count, and be trained on, twice."""
        for row in ids.value_counts().to_pylist() if len(ids) > len(ids.unique()) else ():
            if row["counts"] > 1:
                raise DataError(
                    f"{self.folder} holds episode {row['values']} {row['counts']} times: a part was copied, "
                    f"or two runs were put into one folder; remove one of the parts"
                )

    def _shown(self) -> Shown:
        episodes = self.read("episodes", columns=["kind", "status", "R"]).to_pandas()
        by_kind = episodes.groupby(["kind", "status"])["R"].agg(["size", "mean"]).reset_index()
        by_kind.columns = ["kind", "ended as", "episodes", "mean R"]
        return [f"{self.folder}: {self.recipe.name} ({self.recipe.hash})"], [by_kind]

    @cached_property
    def recorded(self) -> str:
        """16 hex digits of the recorded episodes, the same for a copy of the run, whatever was trained."""
        digest = blake2b(digest_size=8)
        for table, columns in (("episodes", ["R", "wall_s"]), ("turns", ["author", "text", "output_tokens"])):
            for row in self.read(table, columns=["episode_id", *columns]).to_pylist():
                digest.update(json.dumps(row).encode())
        return digest.hexdigest()

    @cached_property
    def recorded_episodes(self) -> frozenset[str]:
        """16 hex digits of each recorded episode that has turns, the same in a copy of the run that grew."""
        digests: dict[str, blake2b] = {}
        for row in self.read("turns", columns=["episode_id", "author", "text", "output_tokens"]).to_pylist():
            name = row["episode_id"]
            digests.setdefault(name, blake2b(digest_size=8)).update(json.dumps(row).encode())
        for row in self.read("episodes", columns=["episode_id", "R", "wall_s"]).to_pylist():
            if row["episode_id"] in digests:
                digests[row["episode_id"]].update(json.dumps(row).encode())
        return frozenset(digest.hexdigest() for digest in digests.values())

    def commit(self, rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Append rows of several tables at once: all of them are there afterwards, or none."""
        tables = {name: table_of(name, part) for name, part in rows.items() if part}
        if tables:
            self.commit_tables(tables)

    def commit_tables(self, tables: Mapping[str, pa.Table]) -> None:
        """Like `commit`, for Arrow tables in the run's schemas."""
        parts = self.folder / "parts"
        if parts.is_symlink():
            raise DataError(f"{parts} is a symbolic link: nothing is written through links; remove it")
        parts.mkdir(exist_ok=True)
        number = 1 + max((int(p.name) for p in parts.glob("[0-9]*")), default=-1)
        draft = parts / f"{_DRAFT}{number:06d}"
        if draft.is_symlink():
            draft.unlink()
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for name, table in tables.items():
            pq.write_table(table, draft / f"{name}.parquet", compression="zstd")
        rows = {name: len(table) for name, table in tables.items()}
        listed = {"part": number, "schema_version": SCHEMA_VERSION, "rows": rows}
        (draft / _LIST).write_text(json.dumps(listed) + "\n", "utf-8")
        sync(draft)
        os.rename(draft, parts / f"{number:06d}")  # fails where another process has written this part
        sync_one(parts)  # the new name alone: earlier parts are on the disk


def move_compact(run: Run, folder: Path, *, without: Sequence[str] = ()) -> None:
    """Move a finished run to a new `folder`, with all its rows in one part: a tenth of the size of many.

    without: tables that are left behind.
    """
    tables = {name: run.read(name) for name in TABLES if name not in without}
    with whole_folder(folder) as draft:
        for item in run.folder.iterdir():
            if item.is_file() and item.name != "lock":
                shutil.copy2(item, draft / item.name)
        kept = {name: rows for name, rows in tables.items() if len(rows)}
        if kept:
            Run(draft, run.recipe, run.info).commit_tables(kept)
    shutil.rmtree(run.folder)


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it falls with the process, however that dies."""
    with os.fdopen(open_file(folder / "lock", os.O_CREAT), "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{folder} is being written by another process: wait, or name another") from error
        yield


def create_run(folder: str | Path, recipe: Recipe, info: Mapping[str, Any]) -> Run:
    """Start a run folder; a folder that holds another run, or where one is being started, is refused."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with only_writer(folder):
        if (folder / "run.json").exists():
            raise DataError(f"{folder} holds a run already: resume it, or name a new folder")
        if any(item.name not in _BEGUN for item in folder.iterdir()):
            raise DataError(f"{folder} is not empty and holds no run: name a new folder")
        return describe(folder, recipe, info)


def describe(folder: Path, recipe: Recipe, info: Mapping[str, Any]) -> Run:
    """Write recipe.toml and run.json of a run that only the caller writes; returns the run."""
    info = {"recipe_hash": recipe.hash, **info, "schema_version": SCHEMA_VERSION}
    write_whole(folder / "recipe.toml", recipe.to_toml())
    write_whole(folder / "run.json", json.dumps(info, indent=2, sort_keys=True) + "\n")
    return Run(folder, recipe, info)


_INFO = {
    "handback": tuple[Any, ...],
    **dict.fromkeys(("replicates", "n_tasks", "attempts"), int),
    **dict.fromkeys(("made_with", "cut"), Mapping[str, Any]),
    **dict.fromkeys(("student", "teacher", "environment", "kind"), str),
}
"""Types of what is read of run.json, where it is there."""


def open_run(folder: str | Path) -> Run:
    """Open a run folder; drafts that a kill left behind are not rows and stay unread."""
    folder = Path(folder)
    if folder.is_file():
        raise DataError(
            f"{folder} is no run folder but a file: expected a folder; conversations become one with "
            f"`fewsteps import {shlex.quote(str(folder))} --out RUN`"
        )
    if not (folder / "run.json").is_file():
        raise DataError(f"{folder} is no run folder: it has no run.json; `fewsteps collect --out` makes one")
    info = read_json(folder / "run.json", then="restore it, or collect anew")
    there = {name: kind for name, kind in _INFO.items() if isinstance(info, Mapping) and name in info}
    check_entries(info, there, of=f"{folder}/run.json")
    _refuse_version(folder, info.get("schema_version"))
    try:
        with reading(folder / "recipe.toml"):
            text = (folder / "recipe.toml").read_text("utf-8")
            recipe = Recipe.from_toml(text)
    except RecipeError as error:
        raise DataError(f"{folder}/recipe.toml: {error}; restore it") from error
    # Version 0.1.0 hashed success_at = 1 as it was spelled, not as 1.0.
    if info.get("recipe_hash") not in (recipe.hash, hash_of(tomllib.loads(text))):
        raise DataError(
            f"{folder}/recipe.toml has hash {recipe.hash}, but run.json was written for "
            f"{info.get('recipe_hash')}: restore the recipe, or collect into a new folder"
        )
    run = Run(folder, recipe, info | {"recipe_hash": recipe.hash})
    _tell_lost(run)
    return run


def _tell_lost(run: Run) -> None:
    """Say once a run, on standard error, that parts of it are not there."""
    name = str(run.folder.absolute())
    if len(_TOLD) >= MOST_TOLD or name in _TOLD or not (lost := run.lost()):
        return
    _TOLD.add(name)
    more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
    say(
        f"warning: {run.folder} has lost {'parts' if more else 'part'} {lost[0]}{more}: what was recorded "
        f"there is not counted; restore it, or play its episodes again with the command that made the run"
    )


def table_of(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as an Arrow table in the table's schema; a missing, unknown or wrong value is named."""
    wanted = schema(name)
    for row in rows:
        if set(row) != set(wanted.names):
            missing, unknown = sorted(set(wanted.names) - set(row)), sorted(set(row) - set(wanted.names))
            raise DataError(f"a row of {name} lacks {missing}, has unknown {unknown}: see docs/formats.md")
    try:
        table = pa.Table.from_pylist(list(rows), schema=wanted)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeError, OverflowError) as error:
        raise DataError(f"a row of {name} does not fit its schema: {error}") from error
    _refuse_cells(table, name, f"a row of {name}")
    return table


def _read_part(file: Path, table: str, wanted: pa.Schema) -> pa.Table:
    """A part's rows; columns that its schema version did not have yet are empty."""
    with reading(file, then="restore the file"):
        version = int((pq.read_schema(file).metadata or {}).get(b"fewsteps", SCHEMA_VERSION))
        later = {c.name for c in TABLES[table] if c.since > version}
        names = [name for name in wanted.names if name not in later]
        rows = pq.read_table(file, columns=names, partitioning=None)
        for name in later & set(wanted.names):
            rows = rows.append_column(name, pa.nulls(len(rows), wanted.field(name).type))
        rows = rows.select(wanted.names).cast(pa.schema([field.with_nullable(True) for field in wanted]))
        rows.validate(full=True)
    _refuse_cells(rows, table, file)
    return rows.cast(wanted)


def _refuse_cells(rows: pa.Table, table: str, where: object) -> None:
    """DataError where a cell is empty that may not be, or a number outside its column's bounds."""
    for column in TABLES[table]:
        if column.name not in rows.column_names:
            continue
        cells = rows[column.name]
        if not column.nullable and cells.null_count:
            raise DataError(f"{where} has an empty cell in {column.name}: it may not be empty; restore it")
        if column.within is not None:
            least, most = column.within
            held = pc.and_(pc.greater_equal(cells, least), pc.less_equal(cells, most))
            if len(wrong := cells.filter(pc.invert(held))):
                raise DataError(
                    f"{where} has {column.name}={wrong[0]} ({len(wrong)} such in all): expected a number "
                    f"{'from 0 to 1' if most == 1 else 'of at least 0'}; restore it, or correct what wrote it"
                )


def _refuse_version(where: Path, version: object) -> None:
    if version not in range(1, SCHEMA_VERSION + 1):
        raise DataError(
            f"{where} has schema version {version!r}: this fewsteps reads versions 1 to {SCHEMA_VERSION}; "
            f"use the release that wrote it"
        )
