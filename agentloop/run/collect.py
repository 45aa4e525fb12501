"""Collect a run: every task through Algorithm 1, many units at a time, written as they are finished.

A unit is one proposal or one demonstration; `algorithm.play_unit` plays it. Its rows are committed together,
so that a resume knows which units are left. The same settings on the same folder resume a run, other settings
are refused by name. The budget may change: a run that stopped at its budget is resumed with a larger one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agentloop.ledger.budget import TOKENS, Budget, ContinuationBudget, Continuations
from agentloop.ledger.metered import Billing, LocalBilling, Metered, bounds_of
from agentloop.ledger.report import refuse_lost_ledger
from agentloop.ledger.store import Ledger
from agentloop.policies.by_name import named, open_environments
from agentloop.run.algorithm import play_unit
from agentloop.run.folder import open_or_create
from agentloop.run.settings import Settings, SpendingLimits, tasks_info
from agentloop.run.types import Setup, Unit
from agentloop.run.units import Progress, play_units
from agentloop.types import Environments, Policy, Replay, Task, can_fork, traits_of
from occupancy.record.errors import InputError, RecipeError
from occupancy.record.prices import PICO
from occupancy.record.rows import Key, storable
from occupancy.runs import Run, only_writer

MOST_UNITS = 10_000_000
"""Proposals of a run; their list is held in memory."""


async def collect(
    folder: str | Path, setup: Setup, *, progress: Progress = lambda done, total, rows: None
) -> Run:
    """Collect into `folder`, or resume a killed or stopped run; returns the finished run.

    Args:
        folder: The run folder.
        setup: What is collected, with which environments and policies, within which budget.
        progress: Called after every commit.

    Raises:
        BudgetStopped: The budget ended it: the folder is a valid run, and a larger budget resumes it.
        RunError: A disk or a server failed: the same call resumes the run once that is repaired.

    Example:
        >>> settings = Settings(preset("op-short", K=3), student="small", teacher="big", tasks="train:40")
        >>> run = await collect("RUN", Setup(settings, environments, student, teacher))
    """
    refuse_budget(setup)
    run, units = begin_run(folder, setup.settings, setup.environments)
    return await play_all(units, run, setup, progress)


async def play_all(units: Sequence[Unit], run: Run, setup: Setup, progress: Progress) -> Run:
    """Play the units that the run lacks, in this process; returns the finished run."""
    with metered(run, setup) as paid:
        play = partial(play_unit, setup=paid)
        return await play_units(units, run, play, at_once=setup.environments.capacity, progress=progress)


@contextmanager
def metered(run: Run, setup: Setup, *, every_call: bool = False) -> Iterator[Setup]:
    """The setup with its policies metered (see `with_meters`), while this process alone writes the run."""
    with only_writer(run.folder), closing(Ledger(run.folder / "ledger.sqlite")) as ledger:
        billing = billing_of(setup.settings, setup.spending, ledger)
        limit = continuation_budget(run, setup.spending, billing["teacher"])
        yield with_meters(setup, billing, continuation_budget=limit, every_call=every_call)


def begin_run(folder: str | Path, settings: Settings, environments: Environments) -> tuple[Run, list[Unit]]:
    """The run in `folder`, new or begun, and all its units."""
    units = units_of(settings, environments)
    tasks = list(dict.fromkeys(unit.key.task_id for unit in units))
    return open_folder(folder, settings, environments, n_units=len(units), **tasks_info(tasks)), units


def open_folder(folder: str | Path, settings: Settings, environments: Environments, **counts: Any) -> Run:
    """The run in `folder`, new or begun with these settings; `counts` are compared too."""
    info = settings.to_info() | {"environment": environments.version} | counts
    servers = {f"{role}_server": address for role, address in settings.served_by.items() if address}
    asked = {"env": settings.env, "env_set": dict(settings.env_set)} if settings.env else {}
    run = open_or_create(Path(folder), settings.recipe, info, made_with=servers | asked)
    refuse_lost_ledger(run)
    return run


def units_of(settings: Settings, environments: Environments) -> list[Unit]:
    """All units of a run, in the order in which they are begun; what cannot be collected is refused here."""
    tasks = tasks_of(environments, settings.tasks, seed=settings.seed)
    refuse_recipe(settings, environments)
    n = _proposals(settings, tasks)
    if not 0 < sum(n.values()) <= MOST_UNITS:
        raise InputError(
            f"{sum(n.values()):,} proposals over {len(tasks):,} tasks: expected 1 to {MOST_UNITS:,}; change "
            f"n, or --n-of-task"
        )
    # Every task once before any is begun again: a budget that ends the run leaves as many tasks as it can.
    again = [(i, task) for i in range(max(n.values())) for task in tasks if i < n[task.task_id]]
    played = [(key_of(settings, task.task_id, i), task) for i, task in again]
    if settings.pilot:
        demos = tasks[: settings.demo_tasks]
        played += [(Key("demo", task.task_id, continuation=0), task) for task in demos]
    return [Unit(key, task, order) for order, (key, task) in enumerate(played)]


def key_of(settings: Settings, task_id: str, i: int) -> Key:
    """Proposal i of a task, or demonstration i where rho is the teacher."""
    if settings.recipe.rho == "teacher":
        return Key("demo", task_id, continuation=i)
    return Key("rollout", task_id, i)


def tasks_of(environments: Environments, spec: str, *, seed: int) -> Sequence[Task]:
    """The tasks that `spec` names, of several specs joined by `+`.

    Raises InputError where there is none, or one twice, or one without a name, or where none could be played.
    """
    if environments.capacity < 1:
        raise InputError(f"{environments.capacity} tasks at a time: expected at least 1, see --workers")
    parts = [spec] if spec.startswith("@") else spec.split("+")
    tasks = [task for part in parts for task in environments.tasks(part, seed=seed)]
    if not tasks:
        raise InputError(f"--tasks {spec} names no task: name a split with tasks in it")
    seen: set[str] = set()
    for task in tasks:
        if task.task_id in seen or not task.task_id or storable(task.task_id) != task.task_id:
            raise InputError(
                f"--tasks {spec} names task {task.task_id!r}, which is empty, no text or named before: "
                f"expected an id of its own for every task"
            )
        seen.add(task.task_id)
    return tasks


def environment_of(info: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """What `--env` named when a run was collected, or its version's first word; and its `--env-set`.

    info: of run.json.
    """
    made: Mapping[str, Any] = info.get("made_with", {})
    name = made.get("env") or str(info.get("environment", "")).partition(" ")[0]
    return str(name), dict(made.get("env_set", {}))


def task_ids(environment: str, env_set: Mapping[str, Any], split: str) -> list[str]:
    """Task ids of a split, as the environment has them: what a budget can be spread over.

    Raises InputError where the environment is none that fewsteps knows, or its data are missing.
    """

    async def ids() -> list[str]:
        environments = open_environments(environment, **env_set)
        try:
            return [task.task_id for task in tasks_of(environments, split, seed=0)]
        finally:
            await environments.close()

    return asyncio.run(ids())


def _proposals(settings: Settings, tasks: Sequence[Task]) -> dict[str, int]:
    unknown = sorted(set(settings.n_of_task) - {task.task_id for task in tasks})
    if unknown:
        raise InputError(
            f"n is given for {unknown[0]!r}, which --tasks {settings.tasks} does not name: leave it out, or "
            f"name the task"
        )
    return {task.task_id: settings.n_of(task.task_id) for task in tasks}


def refuse_recipe(settings: Settings, environments: Environments) -> None:
    """Refuse a recipe that the environments cannot serve, or whose functions cannot be imported."""
    recipe = settings.recipe
    if recipe.T_max > environments.T_max:
        raise RecipeError(
            f"T_max={recipe.T_max}, but an episode of {environments.name} has at most {environments.T_max} "
            f"turns: use --set T_max={environments.T_max}"
        )
    for name in (recipe.psi, recipe.phi, recipe.context, settings.switch_weights):
        if ":" in name:
            named(name)
    if environments.replay is not Replay.NONE or can_fork(environments):
        return
    if settings.pilot:
        raise InputError(
            f"a pilot in {environments.name}, which can be neither replayed nor forked: hand-backs need one "
            f"of the two; collect with a fixed switch law instead"
        )
    filters = (recipe.psi, recipe.context)
    if recipe.rho != "teacher" and (recipe.switch.law not in ("start", "fixed") or filters != ("all", "all")):
        raise RecipeError(
            f"switch law {recipe.switch.law!r} with psi={recipe.psi!r} and context={recipe.context!r} in "
            f"{environments.version}, which can be neither replayed nor forked: the teacher must take over "
            f"live, so t' may not depend on the rollout; use law 'fixed' or 'start' without these filters"
        )


def refuse_budget(setup: Setup, *, every_call: bool = False) -> None:
    """Refuse, before a folder is begun, a policy that has no price or could exceed the budget."""
    for role, (policy, name) in _metered_roles(setup, every_call=every_call).items():
        bounds_of(policy, role=role, name=name, spending=setup.spending)


def _metered_roles(setup: Setup, *, every_call: bool) -> dict[str, tuple[Policy, str]]:
    """Policy and name by role, of those whose calls are in the ledger.

    every_call  the student's too where it costs nothing, so that its turns are in the ledger
    """
    roles = {"teacher": (setup.teacher, setup.settings.teacher)}
    if every_call or traits_of(setup.student).paid:
        roles["student"] = (setup.student, setup.settings.student)
    return roles


def billing_of(settings: Settings, spending: SpendingLimits, ledger: Ledger) -> dict[str, LocalBilling]:
    """The billing of both roles, with one budget where money is limited."""
    limit = _call_budget(spending, ledger)
    teacher = LocalBilling(ledger, "teacher", settings.teacher, budget=limit, axis=spending.axis)
    teacher.total = ledger.charged(spending.axis)
    shared = limit if spending.axis == "money" else None
    student = LocalBilling(ledger, "student", settings.student, budget=shared, axis=spending.axis)
    return {"teacher": teacher, "student": student}


def continuation_budget(run: Run, spending: SpendingLimits, teacher: LocalBilling) -> Continuations | None:
    """The budget for whole continuations, where there is one."""
    if spending.budget is None or not spending.by_continuation:
        return None
    limit = int(spending.budget)
    if spending.axis == "training":
        return ContinuationBudget(limit, spent=sum(run.column("traces", "C_tr")))
    return ContinuationBudget(limit, counted=lambda: teacher.total)


def _call_budget(spending: SpendingLimits, ledger: Ledger) -> Budget | None:
    money = spending.axis == "money"
    if money and ledger.query("select 1 from attempts where charged_money is null limit 1"):
        raise InputError(
            "--axis money on a run whose earlier attempts were written without a price: what they cost is "
            "not known; give --prices from the start, or use --axis inference"
        )
    if spending.budget is None or spending.by_continuation:
        return None
    unit, show = 1, TOKENS
    if money and spending.prices is not None:
        unit, show = PICO, spending.prices.show
    spent, unsure = ledger.charged(spending.axis), ledger.unsure(spending.axis)
    return Budget(int(spending.budget * unit), spent=spent, show=show, unsure=unsure)


def with_meters(
    setup: Setup,
    billing: Mapping[str, Billing],
    *,
    continuation_budget: Continuations | None,
    every_call: bool = False,
) -> Setup:
    """The setup with its policies metered: every paid call goes through the billing of its role."""
    policies: dict[str, Any] = {
        role: Metered(policy, billing[role], role=role, name=name, spending=setup.spending)
        for role, (policy, name) in _metered_roles(setup, every_call=every_call).items()
    }
    return replace(setup, **policies, continuation_budget=continuation_budget)
