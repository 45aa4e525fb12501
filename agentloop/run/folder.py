"""The folder of a run that begins or is resumed: what is compared, what is refused, which units are left.

Units whose environment did not open are tried again by the same command, even when all others are done; so is
a run in which a model failed in every first call.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from agentloop.run.types import Unit
from agentloop.types import Status
from occupancy.record.errors import DataError, RunError, own_version
from occupancy.record.recipe import Recipe
from occupancy.record.rows import Row, Rows
from occupancy.runs import PLAYED_AGAIN, Run, create_run, describe, only_writer, open_run

WITHDRAWN = ".withdrawn-"
SKIPPED = ("invalid_switch", "prefix_filtered", "context_filtered", "empty")
"""Outcomes of proposals for which no teacher is asked to play."""
BROKEN = (Status.ENVIRONMENT_ERROR, Status.RETRIEVER_FAILED)


def open_or_create(
    folder: Path, recipe: Recipe, info: Mapping[str, Any], *, made_with: Mapping[str, Any]
) -> Run:
    """The run of these settings in `folder`, new or begun; DataError where it was begun with others.

    made_with  what a new run also records, and a resume does not compare
    """
    if not (folder / "run.json").exists():
        versions = {name: version(name) for name in ("numpy", "pyarrow")}
        versions |= {"fewsteps": own_version(), "python": platform.python_version()}
        return create_run(folder, recipe, {**info, "made_with": {**versions, **made_with}})
    run = open_run(folder)
    if "wall_s" in info and run.info.get("wall_s") != info["wall_s"]:
        run = _with_other_limit(run, info["wall_s"])
    # Older runs lack these entries: they ended on no parse status, and their tasks are taken as the same.
    older: dict[str, Any] = {"task_hash": info.get("task_hash"), "end_on": []}
    begun = {**older, **run.recipe.to_dict(), **run.info}
    asked = {**recipe.to_dict(), "name": run.recipe.name, **info, "recipe_hash": recipe.hash}
    for name, value in asked.items():
        if begun.get(name) != value:
            raise DataError(
                f"{folder} was started with {name}={begun.get(name)!r}, now {name}={value!r} is asked: "
                f"repeat its settings to resume it, or name a new folder"
            )
    return run


def _with_other_limit(run: Run, wall_s: float | None) -> Run:
    """The run with another limit of an episode, where none began within its own; else as it is.

    The limit is written first, and playing withdraws such parts: a kill in between changes nothing.
    """
    failure = _failure(run)
    if failure is None or not failure.late:
        return run
    with only_writer(run.folder):
        return describe(run.folder, run.recipe, {**run.info, "wall_s": wall_s})


def units_left(units: Sequence[Unit], run: Run) -> list[Unit]:
    """The units whose rows are not in the run yet."""
    done = set(run.column("episodes", "episode_id"))
    return [unit for unit in units if unit.key.episode_id not in done]


def never_began(rows: Rows) -> bool:
    """Whether a unit is one episode whose environment failed before its first turn."""
    episodes = rows.get("episodes", ())
    return len(episodes) == 1 and _unopened(episodes[0])


def withdraw_unopened(run: Run) -> bool:
    """Take back the parts that say only what did not open; whether there are or have been any.

    Where a model failed in every first call, these are all parts. Nothing is deleted: such a part is renamed
    to `.withdrawn-…` and no longer read, and what was bought for it is answered from the ledger. Lost
    parts are marked: their episodes are played again, so that nothing is missing any more.
    """
    parts = run.folder / "parts"
    failure = _failure(run)
    for part in sorted(parts.glob("[0-9]*")):
        if (failure is not None and not failure.begun) or _nothing_opened(part):
            part.rename(parts / f"{WITHDRAWN}{part.name}-{len(list(parts.glob(WITHDRAWN + '*')))}")
    for lost in run.lost():
        (parts / f"{PLAYED_AGAIN}{lost}").touch()
    return any(parts.glob(WITHDRAWN + "*"))


def _unopened(episode: Row) -> bool:
    return episode["status"] in BROKEN and not episode["length"]


def _nothing_opened(part: Path) -> bool:
    if (part / "turns.parquet").exists() or not (part / "episodes.parquet").exists():
        return False
    rows = pq.read_table(part / "episodes.parquet", columns=["status", "length"], partitioning=None)
    return all(_unopened(row) for row in rows.to_pylist())


def refuse_failures_alone(run: Run) -> None:
    """RunError where the environment, the teacher or the student failed in all of its episodes, or where no
    continuation could be replayed to its switch."""
    failure = _failure(run)
    if failure is not None and failure.late:
        raise RunError(
            f"nothing was begun in {run.folder}: the {failure.what} had no turn within --wall in any of "
            f"{failure.episodes} episodes ({failure.error}); run the same command with a larger --wall"
        )
    if failure is not None:
        # What never began is tried again by the same command; what was played is not played twice.
        then = "collect into a new folder" if failure.begun else "run the same command again"
        raise RunError(
            f"the {failure.what} failed in all {failure.episodes} episodes of {run.folder} "
            f"({failure.error}): repair it, and {then}"
        )


class _Failure(NamedTuple):
    """What failed in all of its episodes."""

    what: str
    episodes: int
    error: str
    begun: bool
    """One of them has a turn of its own."""
    late: bool
    """The limit of an episode was over before its first turn."""


def _failure(run: Run) -> _Failure | None:
    columns = ["kind", "status", "error", "length", "switch_turn"]
    rows = run.read("episodes", columns=columns).to_pylist()
    taught = [row for row in rows if row["kind"] in ("continuation", "demo")]
    replayed = [row for row in rows if row["kind"] == "continuation"]
    played = [row for row in rows if row["kind"] in ("rollout", "evaluation")]
    for what, ended, failures in (
        ("environment", rows, BROKEN),
        ("teacher", taught, (Status.TEACHER_FAILED,)),
        ("student", played, (Status.STUDENT_FAILED,)),
        ("replay", replayed, (Status.REPLAY_DESYNC,)),
        ("teacher", taught, (Status.WALL_TIME,)),
        ("student", played, (Status.WALL_TIME,)),
    ):
        if ended and all(row["status"] in failures for row in ended):
            begun = any(row["length"] >= (row["switch_turn"] or 1) for row in ended)
            late = Status.WALL_TIME in failures
            if late and begun:  # slow episodes are data
                continue
            return _Failure(what, len(ended), ended[0]["error"], begun or what == "replay", late)
    outcomes = [] if taught else run.column("proposals", "outcome")
    failed = outcomes.count(Status.TEACHER_FAILED)
    if failed and not set(outcomes) - {Status.TEACHER_FAILED, *SKIPPED}:
        return _Failure("teacher", failed, "it named no switch turn; `fewsteps ledger` has why", False, False)
    return None
