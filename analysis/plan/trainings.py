"""Small training runs as the calibration reads them: which turns were trained on, and what came of it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.plan.calibrate import held_out_loglik
from analysis.plan.pilot import STEP_KINDS, Floats, Ints, Pilot, ratio
from analysis.plan.reading import names
from occupancy.record.errors import DataError
from occupancy.runs import Run, open_run

MOST = 8
"""Trainings at most; two to four are enough."""


@dataclass(frozen=True)
class Training:
    """One training; G contexts of the pilot, N turns held out."""

    name: str
    labels: Floats
    """[G] turns trained on at each context of the pilot (`Steps.node`)."""
    elsewhere: int
    """Turns trained on at contexts that the pilot did not meet."""
    J: float
    """Measured pass@1 on tasks that were not trained on; NaN without an evaluation."""
    se: float
    """Clustered by task."""
    seen: Floats
    """[N] labels at the context of each turn held out."""
    before: Floats
    """[N] its NLL in nats a target under the base."""
    after: Floats
    """[N] and under the trained student."""
    context: Ints
    """[N] where it was."""


def read_trainings(folders: Sequence[str | Path], pilot: Pilot, pilot_folder: str | Path) -> list[Training]:
    """Every training in the run folders, with the evaluations of its student in any of them.

    The pilot's own folder says which context each turn was at. An evaluation belongs to a training whose
    name, or whose output folder's name, it carries.
    """
    runs = [open_run(folder) for folder in dict.fromkeys(Path(folder).resolve() for folder in folders)]
    for run in runs:
        _same_environment(run, pilot)
    contexts = _contexts_of(pilot, [open_run(pilot_folder), *runs])
    evaluations = pd.concat([run.read("evaluations").to_pandas() for run in runs])
    found = []
    for run in runs:
        turns = run.read("trained_turns").to_pandas()
        for name in run.read("trainings", columns=["training_id"])["training_id"].to_pylist():
            own = turns[turns["training_id"] == name]
            if own.empty:
                raise DataError(
                    f"training {name!r} in {run.folder} does not say which turns it was trained on: expected "
                    f"rows in `trained_turns`; train again with this version of `fewsteps train`"
                )
            found.append(_training(name, own, evaluations, contexts, pilot))
    where = ", ".join(str(run.folder) for run in runs)
    if not 0 < len(found) <= MOST:
        raise DataError(
            f"{len(found)} trainings in {where}: expected 1 to {MOST}; train a student on a part of the "
            f"pilot with `fewsteps train`, and evaluate it with `fewsteps evaluate`"
        )
    if all(math.isnan(t.J) and not (t.seen > 0).any() for t in found):
        raise DataError(
            f"nothing was measured of the trainings in {where}: expected an evaluation of their students on "
            f"tasks that they were not trained on, or held-out turns at contexts that they were trained on"
        )
    return found


def held_out(trainings: Sequence[Training], grid: Floats) -> Floats:
    """[G] log likelihood of kappa on the grid, from what the trainings were measured on."""
    sizes = [len(one.seen) for one in trainings]
    return held_out_loglik(
        context=np.concatenate([one.context for one in trainings]),
        training=np.repeat(np.arange(len(trainings)), sizes),
        labels=np.concatenate([one.seen for one in trainings]),
        before=np.concatenate([one.before for one in trainings]),
        after=np.concatenate([one.after for one in trainings]),
        grid=grid,
    )


def _training(
    name: str, turns: pd.DataFrame, evaluations: pd.DataFrame, contexts: pd.Series[int], pilot: Pilot
) -> Training:
    at = contexts.reindex(pd.MultiIndex.from_frame(turns[["episode_id", "t"]])).to_numpy(float)
    if np.isnan(at).all():
        raise DataError(
            f"none of the {len(turns)} turns of training {name!r} is a turn of the pilot or of the runs "
            f"given: expected a training on the pilot's traces; name the run that it was trained on too"
        )
    held = turns["held_out"].to_numpy(bool)
    met = np.nan_to_num(at, nan=-1).astype(np.int64)
    G = int(pilot.steps.node.max()) + 1
    taught = met[~held]
    labels = np.bincount(taught[taught >= 0], minlength=G).astype(float)
    J, se = _measured(name, evaluations, trained=set(turns["cluster_id"][~held]))
    judged = held & (met >= 0) & turns["nll"].notna().to_numpy() & turns["nll_before"].notna().to_numpy()
    return Training(
        name=name,
        labels=labels,
        elsewhere=int((taught < 0).sum()),
        J=J,
        se=se,
        seen=labels[met[judged]],
        before=turns["nll_before"].to_numpy(float)[judged],
        after=turns["nll"].to_numpy(float)[judged],
        context=met[judged],
    )


def _measured(name: str, evaluations: pd.DataFrame, *, trained: set[str]) -> tuple[float, float]:
    """pass@1 and its error on tasks that were not trained on."""
    folder = name.rpartition("-")[0]
    own = [
        text == name or (bool(folder) and folder in re.split(r"[/:@]", text))
        for text in evaluations["training_id"]
    ]
    rows = evaluations[own]
    if rows.empty:
        return math.nan, math.nan
    fresh = rows[~rows["cluster_id"].isin(trained)]
    if fresh["cluster_id"].nunique() < 2:
        raise DataError(
            f"the student of training {name!r} was evaluated on {rows['cluster_id'].nunique()} tasks, "
            f"{fresh['cluster_id'].nunique()} of them not trained on: expected at least 2; evaluate it on "
            f"other tasks"
        )
    cluster, names = pd.factorize(fresh["cluster_id"])
    score = fresh["score"].to_numpy(float)
    mean, error = ratio(score, np.ones_like(score), cluster=cluster, n_clusters=len(names))
    return float(mean), float(error)


def _contexts_of(pilot: Pilot, runs: Sequence[Run]) -> pd.Series[int]:
    """(episode_id, t) -> the pilot's context, for every turn of the runs at a context that the pilot met."""
    columns = ["episode_id", "t", "kind", "context_id", "state_id", "observation"]
    frames = [
        run.read("turns", columns=columns).to_pandas().sort_values(["episode_id", "t"], kind="stable")
        for run in runs
    ]
    for frame in frames:
        frame["name"] = names(frame, pilot.steps.identity)
    codes, values = pd.factorize(frames[0]["name"][frames[0]["kind"].isin(STEP_KINDS)])
    if len(codes) != len(pilot.steps) or (codes != pilot.steps.node).any():
        raise DataError(
            "the pilot's folder does not hold the turns that the plan was made from: name the folder of the "
            "pilot itself"
        )
    number = pd.Series(np.arange(len(values)), index=values)
    every = pd.concat(frames).drop_duplicates(["episode_id", "t"])
    at: pd.Series[int] = every.set_index(["episode_id", "t"])["name"].map(number)
    return at.dropna()


def _same_environment(run: Run, pilot: Pilot) -> None:
    environment = run.info.get("environment")
    if environment is not None and environment != pilot.environment:
        raise DataError(
            f"{run.folder} is of environment {environment!r}, the pilot of {pilot.environment!r}: expected "
            f"trainings on the pilot's environment; leave it out"
        )
