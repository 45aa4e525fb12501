"""Evaluate a policy: every task `attempts` times, every attempt a row, and two standard errors.

A success rate is the mean over tasks of the fraction of each task's attempts that succeed. Over the E
evaluations, sd / sqrt(E) measures the policy's own randomness on these tasks. Clustered by task, the standard
error also covers the choice of tasks, and is the one for comparisons with other task sets (Miller 2024,
section 2). Published bars are often the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from agentloop.run.collect import play_all, tasks_of
from agentloop.run.folder import open_or_create
from agentloop.run.settings import Settings, check_end_on, tasks_info
from agentloop.run.types import Setup, Unit
from agentloop.run.units import Progress
from agentloop.types import Environments, Policy
from occupancy.record.errors import DataError
from occupancy.record.recipe import Recipe
from occupancy.record.rows import Key
from occupancy.record.specs import Few, check
from occupancy.runs import Run
from occupancy.statistics.clusters import mean_over_tasks

RESIDUE = 1e-12
"""Errors of rates up to this are what sums of equal numbers leave by rounding, and no spread of the tasks."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, on what, how often. Saved in run.json, and compared at a resume."""

    policy: str
    tasks: str
    """Task spec, as the environment reads it."""
    attempts: Few = 8
    """Of each task; attempt i of every task together is evaluation i."""
    seed: int = 0
    success_at: float = 1.0
    """Success is R >= this threshold."""
    end_on: tuple[str, ...] = ()
    """Parse statuses that end an attempt as `bad_parse`; see `Settings`."""

    def __post_init__(self) -> None:
        check(self)
        check_end_on(self.end_on)

    @property
    def info(self) -> dict[str, Any]:
        """What run.json says of it."""
        return {
            "kind": "evaluation",
            "student": self.policy,
            "tasks": self.tasks,
            "attempts": self.attempts,
            "seed": self.seed,
            "end_on": sorted(self.end_on),
        }


@dataclass(frozen=True)
class Estimate:
    """A success rate with both standard errors and a 95 % interval."""

    mean: float
    low: float | None
    high: float | None
    interval: str
    """Method of low and high. t: Student's t with the clustered standard error. wilson: that error is 0, as
    where every attempt succeeded. none: a single task."""
    cluster_se: float | None
    """Clustered by task; None with a single task."""
    evaluation_se: float | None
    """Over the evaluations; None with a single evaluation."""
    n: int
    """Attempts."""
    clusters: int
    evaluations: int


async def evaluate(
    folder: str | Path,
    settings: Evaluation,
    *,
    environments: Environments,
    policy: Policy,
    progress: Progress = lambda done, total, rows: None,
) -> Run:
    """Evaluate into `folder`, or resume a killed evaluation; returns the finished run.

    Args:
        folder: The run folder.
        settings: The policy's name, tasks, attempts and seed.
        environments: The benchmark.
        policy: Who plays.
        progress: Called after every commit.

    Raises:
        InputError: The folder holds another evaluation.
        RunError: A disk or a server failed: the same call resumes the evaluation once that is repaired.
    """
    tasks = tasks_of(environments, settings.tasks, seed=settings.seed)
    recipe = Recipe("evaluation", teacher="none", T_max=environments.T_max, success_at=settings.success_at)
    info = settings.info | {"environment": environments.version}
    info |= tasks_info([task.task_id for task in tasks])
    run = open_or_create(Path(folder), recipe, info, made_with={})
    keys = [(Key("evaluation", t.task_id, replicate=i), t) for t in tasks for i in range(settings.attempts)]
    units = [Unit(key, task, order) for order, (key, task) in enumerate(keys)]
    alone = Settings(
        recipe, settings.policy, "none", settings.tasks, seed=settings.seed, end_on=settings.end_on
    )
    return await play_all(units, run, Setup(alone, environments, student=policy, teacher=policy), progress)


def summarise_evaluation(run: Run) -> dict[str, Any]:
    """Success of an evaluation run, with and without the attempts that ended in an error.

    Returns:
        `success` and `success_of_scored` (mean, interval, both standard errors), `by_evaluation`,
        `mean_length` in turns, and `status`: attempts by how they ended.

    Raises:
        DataError: The run holds no evaluation.
    """
    rows = run.read("evaluations").to_pylist()
    if not rows:
        raise DataError(f"{run.folder} holds no evaluation: make one with `fewsteps evaluate`")
    ended = run.read("episodes", columns=["task_id", "replicate", "R", "length"]).to_pylist()
    without_reward = {(row["task_id"], row["replicate"]) for row in ended if row["R"] is None}
    scored = [row for row in rows if (row["task_id"], row["attempt"]) not in without_reward]
    return {
        "folder": str(run.folder),
        "policy": run.info.get("student", ""),
        "environment": run.info.get("environment", ""),
        "success": vars(success(rows, at=run.recipe.success_at)),
        "success_of_scored": vars(success(scored, at=run.recipe.success_at)) if scored else None,
        "by_evaluation": _by_attempt(rows, run.recipe.success_at),
        "mean_length": fmean(row["length"] for row in ended),
        "status": dict(sorted(Counter(row["status"] for row in rows).items())),
    }


def success(rows: Sequence[dict[str, Any]], *, at: float = 1.0) -> Estimate:
    """Success rate with errors: the mean over tasks of the fraction of attempts with score >= `at`.

    rows  one an attempt, with task_id, cluster_id, attempt and score
    """
    clusters = [row["cluster_id"] for row in rows]
    won = [row["score"] >= at for row in rows]
    rate, error = mean_over_tasks(won, task=[row["task_id"] for row in rows], cluster=clusters)
    mean, C = float(rate), len(set(clusters))
    cluster_se = (float(error) if error > RESIDUE else 0.0) if C > 1 else None
    by_attempt = _by_attempt(rows, at)
    E = len(by_attempt)
    evaluation_se = stdev(by_attempt) / sqrt(E) if E > 1 else None
    return Estimate(mean, *interval(mean, cluster_se, C), cluster_se, evaluation_se, len(rows), C, E)


def interval(
    mean: float, cluster_se: float | None, C: int, *, df: float | None = None
) -> tuple[float | None, float | None, str]:
    """95 % interval of a success rate over C clusters, and its method: t, wilson or none.

    Args:
        mean: The rate.
        cluster_se: Its clustered standard error, None with a single cluster.
        C: Clusters, the trials of Wilson's interval where the error is 0.
        df: Degrees of freedom of t; C - 1 by default.
    """
    from scipy.stats import t

    if cluster_se is None:
        return None, None, "none"
    if cluster_se > 0:
        half = float(t.ppf(0.975, C - 1 if df is None else df)) * cluster_se
        return max(mean - half, 0.0), min(mean + half, 1.0), "t"
    return *wilson(mean, C), "wilson"


def wilson(rate: float, trials: int) -> tuple[float, float]:
    """95 % interval of a rate over `trials` (Wilson 1927); finite at rates of 0 and 1."""
    from scipy.stats import norm

    z2 = float(norm.ppf(0.975)) ** 2
    middle = (rate + z2 / (2 * trials)) / (1 + z2 / trials)
    half = sqrt(z2 / trials * (rate * (1 - rate) + z2 / (4 * trials))) / (1 + z2 / trials)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _by_attempt(rows: Sequence[dict[str, Any]], at: float) -> list[float]:
    attempts: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        attempts[row["attempt"]].append(row["score"] >= at)
    return [fmean(attempts[i]) for i in sorted(attempts)]
