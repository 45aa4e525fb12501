"""Attempts of evaluations as one tidy frame: a row an attempt, whatever the evaluations came as."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agentloop.run.episode import NO_DATA
from occupancy.record.errors import DataError, InputError
from occupancy.runs import open_run

_NUMBER = int | float | np.integer | np.floating | np.bool_
Source = str | Path | Mapping[str, Sequence[float]]
"""The folder of an evaluation, or {task_id: [rewards]}."""
COLUMNS = ("arm", "training", "task_id", "cluster_id", "attempt", "success", "no_data", "missing")


def read_scores(
    arms: Mapping[str, Source | Sequence[Source]], *, success_at: float | None = None
) -> pd.DataFrame:
    """Every attempt of every arm.

    Args:
        arms: Name of an arm -> its evaluation, or several: trainings of one arm that differ in their seed.
        success_at: Success is a reward of at least this; by default what each evaluation's run says, and 1
            for rewards that are given as numbers.

    Returns:
        A frame with the columns COLUMNS: arm, training (from 0 in each arm), task_id, cluster_id, attempt,
        success (0 or 1), no_data (the attempt ended in an error, and counts as a failure), missing (how many
        attempts its evaluation should have and has not).

    Raises:
        DataError: An evaluation that is empty, broken or holds a task's attempt twice; arms that were
            evaluated in different environments, or with different thresholds of success.
        InputError: An arm without an evaluation, or a folder that is given twice.
    """
    frames, said, used = [], dict[str, tuple[Any, float]](), dict[Path, str]()
    for arm, given in arms.items():
        trainings = [given] if isinstance(given, str | Path | Mapping) else list(given)
        if not trainings:
            raise InputError(f"arm {arm!r} has no evaluation: expected a folder, or several")
        for training, source in enumerate(trainings):
            if isinstance(source, Mapping):
                rows, at = list(_of_rewards(source, arm)), 1.0 if success_at is None else success_at
            elif not isinstance(source, str | Path):
                raise InputError(
                    f"arm {arm!r} has {source!r}: expected the folder of an evaluation, or "
                    f"{{task_id: [rewards]}}"
                )
            else:
                if twice := used.get(Path(source).resolve()):
                    raise InputError(f"{source} is given twice, in {twice} and {arm}: expected it once")
                used[Path(source).resolve()] = arm
                rows, environment, own = _of_folder(Path(source))
                at = own if success_at is None else success_at
                said[str(source)] = environment, at
            frame = pd.DataFrame(rows)
            frame = frame.assign(arm=arm, training=training, success=(frame["score"] >= at).astype(float))
            frames.append(frame[list(COLUMNS)])
    for other, of_other in said.items():
        one, of_one = next(iter(said.items()))
        if of_one != of_other:
            raise DataError(
                f"{one} was evaluated in {of_one[0]!r} with success at R >= {of_one[1]:g}, {other} in "
                f"{of_other[0]!r} with success at R >= {of_other[1]:g}: compare evaluations of one "
                f"environment, and give --success-at if only the thresholds differ"
            )
    return pd.concat(frames, ignore_index=True)


def _of_folder(folder: Path) -> tuple[list[dict[str, Any]], Any, float]:
    run = open_run(folder)
    found = run.read("evaluations").to_pandas()
    planned = run.info.get("n_tasks", 0) * run.info.get("attempts", 0)
    if found.empty and planned:
        raise DataError(
            f"{folder} holds none of its {planned:,} attempts: restore its parts/, or play them again with "
            f"the same `fewsteps evaluate`"
        )
    if found.empty:
        raise DataError(f"{folder} holds no evaluation: expected the --out of `fewsteps evaluate`")
    if (many := found["training_id"].nunique()) > 1:
        raise DataError(
            f"{folder} holds evaluations of {many} trainings: expected the --out of `fewsteps evaluate`"
        )
    if found.duplicated(["task_id", "attempt"]).any():
        raise DataError(f"{folder} holds an attempt at a task twice: a part was copied; remove one of them")
    found["no_data"] = found["status"].isin(NO_DATA)
    if found["no_data"].all():
        raise DataError(
            f"all {len(found)} attempts of {folder} ended in an error ({found['status'].iloc[0]}), so it "
            f"measures nothing: repair what failed, and evaluate into a new folder"
        )
    rows = found.assign(missing=max(0, planned - len(found))).to_dict("records")
    return rows, run.info.get("environment"), run.recipe.success_at


def _of_rewards(rewards: Mapping[str, Sequence[float]], arm: str) -> Iterator[dict[str, Any]]:
    if len({str(task) for task in rewards}) < max(len(rewards), 1):
        raise DataError(f"arm {arm!r} has no task, or one twice: expected {{task_id: [rewards]}}")
    for task, scores in rewards.items():
        listed = isinstance(scores, Collection) and len(scores)
        if not listed or not all(isinstance(one, _NUMBER) and 0 <= one <= 1 for one in scores):
            raise DataError(
                f"arm {arm!r} has {scores!r} for task {task!r}: expected a list of rewards from 0 to 1"
            )
        of_task = {"task_id": str(task), "cluster_id": str(task), "no_data": False, "missing": 0}
        for attempt, score in enumerate(scores):
            yield of_task | {"attempt": attempt, "score": float(score)}
