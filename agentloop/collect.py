"""Collect a run: every task through Algorithm 1, many at a time, written task by task.

A task's rows are committed together, so a run that was killed knows which tasks are left. The same
settings on the same folder go on where it stopped; other settings are refused by name.
"""

from __future__ import annotations

import asyncio
import fcntl
import platform
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentloop.algorithm import Job, demonstrations, never_opened, proposals
from agentloop.ledger import Ledger, metered
from agentloop.rows import Rows
from agentloop.types import Environment, EnvironmentFailed, Environments, Policy, Task
from occupancy.errors import DataError, InputError, RunError
from occupancy.recipe import INF, Recipe
from occupancy.runs import Run, create_run, open_run

Work = Callable[[Environment, Task, Job], Awaitable[Rows]]
Progress = Callable[[int, int, Rows], None]
"""Told after every commit: units done, units in all, the rows just written."""


@dataclass(frozen=True)
class Settings:
    """What is collected, from what, by whom. Saved in run.json, and compared at a resume."""

    recipe: Recipe
    student: str
    teacher: str
    tasks: str
    """Task spec, as the environment reads it."""
    seed: int = 0
    pilot: bool = False
    handback: tuple[int, ...] = (0, 1, 2, 3, 5)
    """Pilot only: teacher turns after which the student takes over again. 0 measures the student's own
    value of the context: the rollout that t' was drawn from does not, since t' depends on its length."""
    replicates: int = 2
    """Pilot only: hand-backs for each k."""
    demo_tasks: int = 40
    """Pilot only: tasks of the list that also get a demonstration, from its start."""

    def __post_init__(self) -> None:
        if self.pilot and (self.recipe.K != INF or self.recipe.phi != "all" or self.recipe.rho == "teacher"):
            raise InputError(
                f"a pilot with K={self.recipe.K}, phi={self.recipe.phi!r}, rho={self.recipe.rho!r}: it must "
                f"hold whole continuations of student contexts; use --recipe op-short --set K=inf"
            )
        if self.pilot and (min(self.handback, default=0) < 0 or self.replicates < 1 or self.demo_tasks < 0):
            raise InputError(
                f"handback={self.handback}, replicates={self.replicates}, demo_tasks={self.demo_tasks}: "
                f"expected turns >= 0, replicates >= 1 and demo tasks >= 0"
            )

    def to_info(self) -> dict[str, Any]:
        """The settings as run.json holds them; the recipe has a file of its own."""
        info: dict[str, Any] = {
            "kind": "pilot" if self.pilot else "collect",
            "student": self.student,
            "teacher": self.teacher,
            "tasks": self.tasks,
            "seed": self.seed,
        }
        if self.pilot:
            info |= {
                "handback": list(self.handback),
                "replicates": self.replicates,
                "demo_tasks": self.demo_tasks,
            }
        return info


@dataclass(frozen=True)
class Unit:
    """What is done and committed at once: one task's proposals, or its demonstrations."""

    kind: str
    """Kind of the episode that proves it done."""
    task: Task
    work: Work


async def collect(
    folder: str | Path,
    settings: Settings,
    *,
    environments: Environments,
    student: Policy,
    teacher: Policy,
    progress: Progress = lambda done, total, rows: None,
) -> Run:
    """Collect into `folder`, or go on where a killed run stopped; returns the finished run."""
    tasks = environments.tasks(settings.tasks, seed=settings.seed)
    if not tasks:
        raise InputError(f"--tasks {settings.tasks} names no task: name a split with tasks in it")
    run = _open_or_create(Path(folder), settings, environments, tasks)
    with _only_writer(run.folder):
        ledger = Ledger(run.folder / "ledger.sqlite")
        try:
            job = _job(
                settings,
                environments,
                student,
                metered(teacher, ledger, role="teacher", name=settings.teacher),
            )
            units = _units(settings, tasks)
            done = _done(run)
            left = [unit for unit in units if (unit.kind, unit.task.task_id) not in done]
            finished = len(units) - len(left)
            async for rows in _work(left, environments, job):
                run.commit(rows)
                finished += 1
                progress(finished, len(units), rows)
        finally:
            ledger.close()
    return run


async def _work(units: Sequence[Unit], environments: Environments, job: Job) -> AsyncIterator[Rows]:
    """Rows of each unit as it finishes; as many units at a time as the environment has room for."""
    waiting = iter(units)
    running: set[asyncio.Task[Rows]] = set()

    async def one(unit: Unit) -> Rows:
        try:
            async with environments.open(unit.task) as env:
                return await unit.work(env, unit.task, job)
        except EnvironmentFailed as error:
            return never_opened(unit.kind, unit.task, job, error)

    try:
        while True:
            while len(running) < environments.capacity and (unit := next(waiting, None)) is not None:
                running.add(asyncio.create_task(one(unit)))
            if not running:
                return
            finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _units(settings: Settings, tasks: Sequence[Task]) -> list[Unit]:
    if settings.recipe.rho == "teacher":
        return [Unit("demo", task, demonstrations) for task in tasks]
    demos = tasks[: settings.demo_tasks] if settings.pilot else ()
    return [
        *(Unit("rollout", task, proposals) for task in tasks),
        *(Unit("demo", task, demonstrations) for task in demos),
    ]


def _done(run: Run) -> set[tuple[str, str]]:
    episodes = run.read("episodes", columns=["kind", "task_id"])
    return set(zip(episodes["kind"].to_pylist(), episodes["task_id"].to_pylist(), strict=True))


def _job(settings: Settings, environments: Environments, student: Policy, teacher: Policy) -> Job:
    job = Job(
        recipe=settings.recipe,
        student=student,
        teacher=teacher,
        student_name=settings.student,
        teacher_name=settings.teacher,
        environment=environments.version,
        seed=settings.seed,
    )
    return replace(job, handback=settings.handback, replicates=settings.replicates) if settings.pilot else job


def _open_or_create(
    folder: Path, settings: Settings, environments: Environments, tasks: Sequence[Task]
) -> Run:
    info = settings.to_info() | {"environment": environments.version, "n_tasks": len(tasks)}
    if not (folder / "run.json").exists():
        made_with = {name: version(name) for name in ("numpy", "pyarrow")}
        made_with |= {"fewsteps": version("fewsteps"), "python": platform.python_version()}
        return create_run(folder, settings.recipe, info | {"made_with": made_with})
    run = open_run(folder)
    wanted = info | {"recipe_hash": settings.recipe.hash}
    for name, value in wanted.items():
        if run.info.get(name) != value:
            raise DataError(
                f"{folder} was started with {name}={run.info.get(name)!r}, now {name}={value!r} is asked: "
                f"repeat its settings to resume it, or name a new folder"
            )
    return run


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; it falls with the process, however that dies."""
    with (folder / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(
                f"{folder} is being written by another process: wait for it, or name a new folder"
            ) from error
        yield
