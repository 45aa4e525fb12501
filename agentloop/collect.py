"""Collect a run: every task through Algorithm 1, many units at a time, written as they are finished.

A unit is one proposal, or one demonstration. Its rows are committed together, so a run that was killed
knows which units are left. The same settings on the same folder go on where it stopped; other settings
are refused by name. What it may spend is no setting: a run that stopped at its budget is resumed with more.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from agentloop.algorithm import demonstration, proposal, unopened
from agentloop.budget import Budget, ContinuationBudget
from agentloop.ledger import Ledger
from agentloop.ledger_report import refuse_lost_ledger
from agentloop.metered import Books, Meter, OwnBooks, metered
from agentloop.parts import Job, Stage
from agentloop.prices import PICO
from agentloop.rows import Key, Rows
from agentloop.settings import Settings, Spending, task_hash
from agentloop.switching import refuse_live, refuse_recipe
from agentloop.types import Author, EnvironmentFailed, Environments, Policy, Replay, Status, Task, traits_of
from agentloop.units import Committer, NotOpened, Progress, Unit, only_writer, work
from occupancy.errors import DataError, InputError, RunError
from occupancy.recipe import Recipe
from occupancy.runs import Run, create_run, open_run

__all__ = ["Settings", "Spending", "collect"]


async def collect(
    folder: str | Path,
    settings: Settings,
    *,
    environments: Environments,
    student: Policy,
    teacher: Policy,
    spending: Spending | None = None,
    progress: Progress = lambda done, total, rows: None,
) -> Run:
    """Collect into `folder`, or go on where a killed or stopped run ended; returns the finished run.

    BudgetStopped where the budget ended it: the folder is a valid run, and the same call with more money
    goes on. RunError where a disk or a server failed: the same call goes on once that is repaired.
    """
    spending = spending or Spending()
    tasks = environments.tasks(settings.tasks, seed=settings.seed)
    if not tasks:
        raise InputError(f"--tasks {settings.tasks} names no task: name a split with tasks in it")
    units = _units(settings, tasks)
    refuse_recipe(settings.recipe, environments)
    if _live(environments):
        _refuse_live(settings, environments)
    info = settings.to_info() | {
        "environment": environments.version,
        "n_tasks": len(tasks),
        "task_hash": task_hash(tasks),
        "n_units": len(units),
    }
    servers = {f"{role}_server": address for role, address in settings.served_by.items() if address}
    run = open_or_create(Path(folder), settings.recipe, info, made_with=servers)
    with only_writer(run.folder):
        refuse_lost_ledger(run)
        ledger = Ledger(run.folder / "ledger.sqlite")
        try:
            job = _job(
                settings,
                environments,
                run,
                student=student,
                teacher=teacher,
                ledger=ledger,
                spending=spending,
            )
            done = _done(run)
            left = [unit for unit in units if _place(unit.key) not in done]
            committer = Committer(run, done=len(units) - len(left), total=len(units), progress=progress)

            async def one(unit: Unit) -> Rows:
                return await _one(unit, environments, job)

            stop = await work(left, one, committer, at_once=environments.capacity)
        finally:
            ledger.close()
    if stop is not None:
        raise stop
    _refuse_nothing(run)
    return run


def _refuse_nothing(run: Run) -> None:
    """RunError where the environment failed in every episode: that is no result."""
    ended = run.read("episodes", columns=["status", "error"]).to_pylist()
    if ended and all(row["status"] in (Status.ENVIRONMENT_ERROR, Status.RETRIEVER_FAILED) for row in ended):
        raise RunError(
            f"the environment failed in all {len(ended)} episodes of {run.folder} ({ended[0]['error']}): "
            f"repair it, and collect into a new folder"
        )


def _refuse_live(settings: Settings, environments: Environments) -> None:
    if settings.pilot:
        raise InputError(
            f"a pilot in {environments.name}, which can be neither replayed nor forked: hand-backs need "
            "one of "
            f"the two; collect with a fixed switch law instead"
        )
    refuse_live(settings.recipe, environments.version)


async def _one(unit: Unit, environments: Environments, job: Job) -> Rows:
    play = proposal if unit.key.kind == "rollout" else demonstration
    opened = False
    try:
        async with environments.open(unit.key.task) as env:
            opened = True
            return await play(Stage(env, job, unit.order), unit.key)
    except EnvironmentFailed as error:
        if opened:
            raise
        raise NotOpened(unopened(job, unit.key, error), error) from error


def _units(settings: Settings, tasks: Sequence[Task]) -> list[Unit]:
    unknown = sorted(set(settings.n_of_task) - {task.task_id for task in tasks})
    if unknown:
        raise InputError(
            f"n is given for {unknown[0]!r}, which --tasks {settings.tasks} does not name: leave it out, "
            "or name "
            f"the task"
        )
    n = {task.task_id: settings.n_of_task.get(task.task_id, settings.recipe.n) for task in tasks}
    pure_bc = settings.recipe.rho == "teacher"
    keys = [
        Key("demo", task, continuation=i) if pure_bc else Key("rollout", task, i)
        for task in tasks
        for i in range(n[task.task_id])
    ]
    if settings.pilot:
        keys += [Key("demo", task, continuation=0) for task in tasks[: settings.demo_tasks]]
    return [Unit(key, order) for order, key in enumerate(keys)]


def _place(key: Key) -> tuple[str, str, int]:
    return key.kind, key.task.task_id, max(key.rollout, key.continuation)


def _done(run: Run) -> set[tuple[str, str, int]]:
    columns = ["kind", "task_id", "rollout", "continuation"]
    episodes = (run.read("episodes", columns=columns)[name].to_pylist() for name in columns)
    return {(kind, task, max(i, j)) for kind, task, i, j in zip(*episodes, strict=True) if kind != "handback"}


def _live(environments: Environments) -> bool:
    return environments.replay is Replay.NONE and not getattr(environments, "forks", False)


def _job(
    settings: Settings,
    environments: Environments,
    run: Run,
    *,
    student: Policy,
    teacher: Policy,
    ledger: Ledger,
    spending: Spending,
) -> Job:
    tokenizer = traits_of(student).tokenizer
    budget = _budget(spending, ledger)
    books = {"teacher": OwnBooks(ledger, "teacher", settings.teacher, budget=budget, axis=spending.axis)}
    books["teacher"].total = ledger.charged(spending.axis)
    if traits_of(student).paid:
        shared = budget if spending.axis == "money" else None
        books["student"] = OwnBooks(ledger, "student", settings.student, budget=shared, axis=spending.axis)
        student = metered(student, meter_of("student", settings, spending, books["student"]))
    job = Job(
        recipe=settings.recipe,
        student=student,
        teacher=metered(teacher, meter_of("teacher", settings, spending, books["teacher"])),
        student_name=settings.student,
        teacher_name=settings.teacher,
        environment=environments.version,
        seed=settings.seed,
        wall_s=settings.wall_s,
        switch_prompt=settings.switch_prompt,
        live=_live(environments),
        forks=getattr(environments, "forks", False),
        teacher_ids=bool(tokenizer) and traits_of(teacher).tokenizer == tokenizer,
    )
    if settings.pilot:
        job = replace(job, handback=settings.handback, replicates=settings.replicates)
    if spending.budget is None or budget is not None:
        return job
    if spending.axis == "training":
        spent = sum(run.read("traces", columns=["C_tr"])["C_tr"].to_pylist())
        return replace(job, continuation_budget=ContinuationBudget(int(spending.budget), spent=spent))

    def counted() -> int:
        return books["teacher"].total

    def cost(rows: Rows) -> int:
        return sum(t["output_tokens"] for t in rows.get("turns", ()) if t["author"] == Author.TEACHER)

    limit = ContinuationBudget(int(spending.budget), counted=counted)
    return replace(job, continuation_budget=limit, cost=cost)


def meter_of(role: str, settings: Settings, spending: Spending, books: Books) -> Meter:
    """How a role's calls are metered under these settings."""
    name = settings.teacher if role == "teacher" else settings.student
    limited = spending.budget is not None and spending.axis != "training" and not spending.matched
    return Meter(
        books,
        role,
        name,
        price=None if spending.prices is None else spending.prices.find(name),
        bounded=limited and (role == "teacher" or spending.axis == "money"),
        turn_tokens=spending.turn_tokens,
        retries=spending.retries,
        backoff_s=spending.backoff_s,
    )


def _budget(spending: Spending, ledger: Ledger) -> Budget | None:
    money = spending.axis == "money"
    if money and ledger.query("select 1 from attempts where charged_money is null limit 1"):
        raise InputError(
            "--axis money on a run whose earlier attempts were written without a price: what they cost is "
            "not "
            "known; give --prices from the start, or use --axis inference"
        )
    if spending.budget is None or spending.axis == "training" or spending.matched:
        return None
    spent = ledger.charged(spending.axis)
    if spending.prices is None or not money:
        return Budget(int(spending.budget), spent=spent)
    return Budget(int(spending.budget * PICO), spent=spent, show=spending.prices.show)


def open_or_create(
    folder: Path, recipe: Recipe, info: Mapping[str, Any], *, made_with: Mapping[str, str]
) -> Run:
    """The run of these settings in `folder`, new or begun; DataError where it was begun with others.

    made_with  what a new run also records, and a resume does not compare
    """
    if not (folder / "run.json").exists():
        versions = {name: version(name) for name in ("numpy", "pyarrow")}
        versions |= {"fewsteps": _own_version(), "python": platform.python_version()}
        return create_run(folder, recipe, {**info, "made_with": {**versions, **made_with}})
    run = open_run(folder)
    for name, value in {**info, "recipe_hash": recipe.hash}.items():
        # Runs from before there was a task_hash are taken at their word.
        if run.info.get(name, value if name == "task_hash" else None) != value:
            raise DataError(
                f"{folder} was started with {name}={run.info.get(name)!r}, now {name}={value!r} is asked: "
                f"repeat its settings to resume it, or name a new folder"
            )
    return run


def _own_version() -> str:
    try:
        return version("fewsteps")
    except PackageNotFoundError:
        return "run from its source, not installed"
