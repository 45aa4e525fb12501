"""Small trainings as a pilot's folder keeps them, and what a training must be to be believed, new or kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from agentloop.run.episode import NO_DATA
from analysis.curves.arms import Arm
from analysis.curves.evidence import Training
from analysis.plan.read import teacher_tokens
from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading
from occupancy.record.specs import NotNegative, check_entries
from occupancy.runs import Run, open_run
from occupancy.statistics.clusters import task_weights

_ENTRIES = {
    "arm": Mapping[str, Any],
    "demo_tokens": NotNegative,
    "continuation_tokens": NotNegative,
    "sunk_tokens": NotNegative,
    "seed": int,
    "seconds": NotNegative,
}
"""Of the column `data` of `trainings`, in the row of a small training."""
_OF = ("student", "environment", "recipe_hash")
"""Entries of run.json by which a training of another pilot is known."""


def of_pilot(run: Run) -> dict[str, Any]:
    """What a training keeps of its pilot."""
    return {name: run.info.get(name) for name in _OF}


def own_tasks(*runs: Run) -> frozenset[str]:
    """Tasks and clusters that runs were recorded on."""
    names = ("task_id", "cluster_id")
    return frozenset(chain.from_iterable(run.column("episodes", name) for run in runs for name in names))


def kept_trainings(run: Run, *, trainer: str | None = None) -> dict[str, Training]:
    """Small trainings that a run folder has kept, by id.

    Args:
        run: the pilot, or a run that was pooled with it.
        trainer: name of the trainer; None: of every trainer.

    Raises:
        DataError: one is damaged, is of another pilot, or has rewards that are no evidence.
    """
    rows = [row for row in small_trainings(run) if trainer in (None, row["base"])]
    if not rows:
        return {}
    attempts = run.read("evaluations").to_pylist()
    tasks, tokens = own_tasks(run), teacher_tokens(run.folder)
    found: dict[str, Training] = {}
    for row in rows:
        name, made = row["training_id"], row["data"]
        where = f"the training {name} that {run.folder} has kept"
        check_entries({"sunk_tokens": 0} | made, _ENTRIES, of=where)
        trained_on = made["demo_tokens"], made["continuation_tokens"]
        more = any(own > most for own, most in zip(trained_on, tokens, strict=True))
        if name in found or more or made.get("pilot", of_pilot(run)) != of_pilot(run):
            raise DataError(
                f"{where} is {'there twice' if name in found else 'of another pilot'}: remove the part of "
                f"{run.folder / 'parts'} that was added to it"
            )
        own = [attempt for attempt in attempts if attempt["training_id"] == name]
        try:
            scored = believed(own, own_tasks=tasks, said=f"{where} has")
            found[name] = training_of(made, scored, success_at=run.recipe.success_at)
        except InputError as error:
            raise DataError(str(error) if where in str(error) else f"{where} has {error}") from error
    return found


def small_trainings(run: Run) -> list[dict[str, Any]]:
    """Rows of `trainings` that small trainings on cuts of the run have left, `data` as an object."""
    rows = run.read("trainings", columns=["training_id", "base", "data"]).to_pylist()
    for row in rows:
        where = f"data of the training {row['training_id']} in {run.folder}"
        with reading(where):
            row["data"] = json.loads(row["data"])
        check_entries(row["data"], {}, of=where)
    # What `fewsteps train` writes has the hash of its rows.
    return [row for row in rows if "data_hash" not in row["data"]]


def evidence(answer: Any, *, own_tasks: frozenset[str], like: Run, trainer: str) -> list[dict[str, Any]]:
    """Rows of `evaluations` of what a trainer returned; DataError where it cannot be believed."""
    said = f"the trainer {trainer} returned"
    if isinstance(answer, str | Path):
        rows = _evaluation(Path(answer), like=like, said=said)
    elif isinstance(answer, Mapping):
        rows = [
            {"task_id": task, "cluster_id": task, "attempt": at, "score": score, "status": "finished"}
            for task, scores in zip(map(str, answer), answer.values(), strict=True)
            for at, score in enumerate(_scores(task, scores, said))
        ]
    else:
        what = f"a {type(answer).__name__}"
        raise DataError(f"{said} {what}: expected the folder of an evaluation or {{task_id: [rewards]}}")
    return believed(rows, own_tasks=own_tasks, said=said)


def believed(rows: list[dict[str, Any]], *, own_tasks: frozenset[str], said: str) -> list[dict[str, Any]]:
    """Rows of `evaluations` with rewards as floats; DataError where they are no evidence."""
    for row in rows:
        score = row["score"]
        if not isinstance(score, int | float | np.integer | np.floating | np.bool_) or not 0 <= score <= 1:
            raise DataError(
                f"{said} the reward {score!r} for task {row['task_id']!r}: expected numbers from 0 to 1"
            )
        row["score"] = float(score)
    tasks = {row["cluster_id"] for row in rows}
    if len(tasks) < 2:
        raise DataError(
            f"{said} rewards of {len(tasks)} tasks: expected at least 2, and better 100 or more; errors are "
            f"clustered by task"
        )
    if shared := sorted((tasks | {row["task_id"] for row in rows}) & own_tasks):
        raise DataError(
            f"{said} rewards on {len(shared)} tasks that the student was trained on (first: {shared[0]!r}): "
            f"evaluate on others"
        )
    return rows


def _scores(task: Any, scores: Any, said: str) -> Sequence[Any]:
    if isinstance(scores, str) or not isinstance(scores, Sequence | np.ndarray) or not len(scores):
        raise DataError(f"{said} {scores!r} for task {task!r}: expected a list of rewards from 0 to 1")
    return list(scores)


def _evaluation(folder: Path, *, like: Run, said: str) -> list[dict[str, Any]]:
    run = open_run(folder)
    rows = run.read("evaluations").to_pylist()
    here, there = (each.info.get("environment") for each in (run, like))
    wrong = ""
    if folder.resolve() == like.folder.resolve() or "cut" in run.info:
        wrong = "the pilot itself or a cut of it: expected the folder of an evaluation"
    elif not rows:
        wrong = "which holds no evaluation: expected the --out of `fewsteps evaluate`"
    elif here not in (None, there):
        wrong = f"an evaluation in {here!r}: the pilot is of {there!r}; evaluate there"
    if wrong:
        raise DataError(f"{said} {folder}, {wrong}")
    return [row for row in rows if row["status"] not in NO_DATA]


def training_of(
    told: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]], *, success_at: float
) -> Training:
    """A small training, from what is kept of it and its attempts."""
    frame = pd.DataFrame(attempts)
    weights = task_weights(frame["task_id"])
    won = weights * (frame["score"] >= success_at)
    by_task = pd.DataFrame({"won": won, "tried": weights}).groupby(frame["cluster_id"]).sum()
    return Training(
        arm=Arm.from_dict(told["arm"]),
        demo_tokens=int(told["demo_tokens"]),
        continuation_tokens=int(told["continuation_tokens"]),
        seed=int(told["seed"]),
        successes=tuple(by_task["won"]),
        attempts=tuple(by_task["tried"]),
        tasks=tuple(map(str, by_task.index)),
        seconds=float(told["seconds"]),
        sunk_tokens=int(told.get("sunk_tokens", 0)),
    )
