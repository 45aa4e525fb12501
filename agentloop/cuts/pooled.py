"""Several runs of one collection as one run folder: their rows and their ledgers together."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from agentloop.ledger.store import Ledger
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError
from occupancy.record.tables import TABLES
from occupancy.runs import Run, create_run, open_run

_OF_ONE = ("n_tasks", "task_hash", "n_units", "recipe_hash", "schema_version")
"""Entries of run.json that are true of a single part."""
_KEPT = tuple(name for name in TABLES if name not in ("trainings", "evaluations", "trained_turns"))


def pooled(parts: Sequence[Run], folder: Path, **info: Any) -> Run:
    """The runs as one, in `folder`: with the recipe of the first, and its run.json but for `info`.

    Raises DataError where an episode is in two of them: its price and its turns would count twice.
    """
    _refuse_same_episodes(parts)
    of_all = {name: value for name, value in parts[0].info.items() if name not in _OF_ONE}
    if all("n_tasks" in part.info for part in parts):
        of_all["n_tasks"] = sum(part.info["n_tasks"] for part in parts)
    of_all["pooled"] = [part.folder.name for part in parts]
    with whole_folder(folder) as draft:
        pool = create_run(draft, parts[0].recipe, of_all | info)
        for part in parts:
            # A pure BC run has a proposal for each demonstration, which no student's rollout belongs to.
            kept = [name for name in _KEPT if name != "proposals" or part.recipe.rho != "teacher"]
            tables = {name: part.read(name) for name in kept}
            pool.commit_tables({name: rows for name, rows in tables.items() if len(rows)})
        _pool_ledgers([part.folder / "ledger.sqlite" for part in parts], draft / "ledger.sqlite")
    return open_run(folder)


def _refuse_same_episodes(parts: Sequence[Run]) -> None:
    seen: dict[str, Path] = {}
    for part in parts:
        for name in part.column("episodes", "episode_id"):
            if name in seen:
                raise DataError(
                    f"episode {name!r} is in {seen[name]} and in {part.folder}: expected runs on other tasks "
                    f"each time"
                )
            seen[name] = part.folder


def _pool_ledgers(files: Sequence[Path], target: Path) -> None:
    """One ledger with the attempts of all; none where a part has none, since costs would be lacking."""
    if not all(file.exists() for file in files):
        return
    with copied_ledger(files[0], target) as new:
        for file in files[1:]:
            with closing(Ledger(file, read_only=True)) as ledger:
                rows = [{name: value for name, value in row.items() if name != "id"} for row in ledger.rows()]
            for row in rows[:1]:
                columns, holes = ", ".join(row), ", ".join(f":{name}" for name in row)
                new.executemany(f"insert into attempts ({columns}) values ({holes})", rows)


@contextmanager
def copied_ledger(source: Path, target: Path) -> Iterator[sqlite3.Connection]:
    """A copy of a ledger, open for changes that are written when the block ends."""
    with closing(sqlite3.connect(target)) as new, new:
        with closing(Ledger(source, read_only=True)) as old:
            old.copy_to(new)
        yield new
