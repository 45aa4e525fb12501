"""Collect a run: every task through Algorithm 1, many units at a time, written as they are finished.

A unit is one proposal, or one demonstration. Its rows are committed together, so a run that was killed
knows which units are left. The same settings on the same folder go on where it stopped; other settings
are refused by name. What it may spend is no setting: a run that stopped at its budget is resumed with more.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from agentloop.ledger.budget import Budget, ContinuationBudget
from agentloop.ledger.metered import OwnBooks
from agentloop.ledger.prices import PICO
from agentloop.ledger.report import refuse_lost_ledger
from agentloop.ledger.store import Ledger
from agentloop.run.jobs import job_of, left_of, play_unit, units_of
from agentloop.run.reopen import refuse_twice, withdraw_unopened
from agentloop.run.rows import Rows
from agentloop.run.settings import Settings, Spending, task_hash
from agentloop.run.units import Committer, NotOpened, Progress, Unit, work
from agentloop.types import Environments, Policy, Status
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.recipe import Recipe
from occupancy.runs import Run, create_run, only_writer, open_run

__all__ = ["Settings", "Spending", "begin_run", "books_of", "collect", "continuations_of", "open_or_create"]


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
    run, units = begin_run(folder, settings, environments)
    with only_writer(run.folder):
        ledger = Ledger(run.folder / "ledger.sqlite")
        try:
            books = books_of(settings, spending, ledger)
            job = job_of(
                settings, environments, spending, student=student, teacher=teacher, books=books.__getitem__
            )
            job = replace(job, continuation_budget=continuations_of(run, spending, books["teacher"]))
            again = withdraw_unopened(run)
            left = left_of(units, run)
            committer = Committer(run, done=len(units) - len(left), total=len(units), progress=progress)

            async def one(unit: Unit) -> Rows | NotOpened:
                return await play_unit(unit, environments, job)

            stop = await work(left, one, committer, at_once=environments.capacity, again=again)
        finally:
            ledger.close()
    if stop is not None:
        raise stop
    refuse_nothing(run)
    return run


def refuse_nothing(run: Run) -> None:
    """RunError where the environment, or a model, failed in every episode of its own: that is no result."""
    rows = run.read("episodes", columns=["kind", "status", "error"]).to_pylist()
    taught = [row for row in rows if row["kind"] in ("continuation", "demo")]
    played = [row for row in rows if row["kind"] in ("rollout", "evaluation")]
    for what, ended, failures in (
        ("environment", rows, (Status.ENVIRONMENT_ERROR, Status.RETRIEVER_FAILED)),
        ("teacher", taught, (Status.TEACHER_FAILED,)),
        ("student", played, (Status.STUDENT_FAILED,)),
    ):
        if ended and all(row["status"] in failures for row in ended):
            raise RunError(
                f"the {what} failed in all {len(ended)} episodes of {run.folder} ({ended[0]['error']}): "
                f"repair it, and collect into a new folder"
            )


def begin_run(folder: str | Path, settings: Settings, environments: Environments) -> tuple[Run, list[Unit]]:
    """The run in `folder`, new or begun, and all its units."""
    units = units_of(settings, environments)
    tasks = list(dict.fromkeys(unit.key.task.task_id for unit in units))
    info = settings.to_info() | {
        "environment": environments.version,
        "n_tasks": len(tasks),
        "task_hash": task_hash(tasks),
        "n_units": len(units),
    }
    servers = {f"{role}_server": address for role, address in settings.served_by.items() if address}
    run = open_or_create(Path(folder), settings.recipe, info, made_with=servers)
    refuse_twice(run)
    refuse_lost_ledger(run)
    return run, units


def books_of(settings: Settings, spending: Spending, ledger: Ledger) -> dict[str, OwnBooks]:
    """The books of both roles, with one budget where money is limited."""
    budget = _budget(spending, ledger)
    teacher = OwnBooks(ledger, "teacher", settings.teacher, budget=budget, axis=spending.axis)
    teacher.total = ledger.charged(spending.axis)
    shared = budget if spending.axis == "money" else None
    student = OwnBooks(ledger, "student", settings.student, budget=shared, axis=spending.axis)
    return {"teacher": teacher, "student": student}


def continuations_of(run: Run, spending: Spending, teacher: OwnBooks) -> ContinuationBudget | None:
    """The budget for whole continuations, where there is one."""
    if spending.budget is None or not spending.by_continuation:
        return None
    limit = int(spending.budget)
    if spending.axis == "training":
        return ContinuationBudget(limit, spent=sum(run.read("traces", columns=["C_tr"])["C_tr"].to_pylist()))
    return ContinuationBudget(limit, counted=lambda: teacher.total)


def _budget(spending: Spending, ledger: Ledger) -> Budget | None:
    money = spending.axis == "money"
    if money and ledger.query("select 1 from attempts where charged_money is null limit 1"):
        raise InputError(
            "--axis money on a run whose earlier attempts were written without a price: what they cost is "
            "not "
            "known; give --prices from the start, or use --axis inference"
        )
    if spending.budget is None or spending.by_continuation:
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
    # Runs from before there was such an entry: they ended on no parse status, and their tasks are believed.
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


def _own_version() -> str:
    try:
        return version("fewsteps")
    except PackageNotFoundError:
        return "run from its source, not installed"
