"""What a run has to do, unit by unit, and how one unit is done; the same on one machine and on many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentloop.ledger.metered import Books, Meter, metered
from agentloop.policies.by_name import named
from agentloop.run.algorithm import demonstration, proposal, unopened
from agentloop.run.parts import Job, Stage
from agentloop.run.reopen import never_began
from agentloop.run.rows import Key, Rows
from agentloop.run.settings import Settings, Spending
from agentloop.run.switching import refuse_live, refuse_recipe
from agentloop.run.units import NotOpened, Unit
from agentloop.types import (
    Author,
    EnvironmentFailed,
    Environments,
    Policy,
    Replay,
    Task,
    storable,
    traits_of,
)
from occupancy.record.errors import InputError
from occupancy.runs import Run

MOST_UNITS = 10_000_000
"""Proposals of a run; their list is held in memory."""


def units_of(settings: Settings, environments: Environments) -> list[Unit]:
    """All units of a run, in the order in which they are begun; what cannot be collected is refused here."""
    tasks = tasks_of(environments, settings.tasks, seed=settings.seed)
    refuse_recipe(settings.recipe, environments)
    if _live(environments):
        _refuse_live(settings, environments)
    n = _proposals(settings, tasks)
    if not 0 < sum(n.values()) <= MOST_UNITS:
        raise InputError(
            f"{sum(n.values()):,} proposals over {len(tasks):,} tasks: expected 1 to {MOST_UNITS:,}; change "
            f"n, or --n-of-task"
        )
    for name in (settings.recipe.psi, settings.recipe.phi, settings.switch_weights):
        if ":" in name:
            named(name)
    pure_bc = settings.recipe.rho == "teacher"
    keys = [
        Key("demo", task, continuation=i) if pure_bc else Key("rollout", task, i)
        for task in tasks
        for i in range(n[task.task_id])
    ]
    if settings.pilot:
        keys += [Key("demo", task, continuation=0) for task in tasks[: settings.demo_tasks]]
    return [Unit(key, order) for order, key in enumerate(keys)]


def tasks_of(environments: Environments, spec: str, *, seed: int) -> Sequence[Task]:
    """The tasks that `spec` names; InputError where there is none, or one twice, or one that has no name."""
    tasks = environments.tasks(spec, seed=seed)
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


def left_of(units: Sequence[Unit], run: Run) -> list[Unit]:
    """The units whose rows are not in the run yet."""
    columns = ["kind", "task_id", "rollout", "continuation"]
    episodes = (run.read("episodes", columns=columns)[name].to_pylist() for name in columns)
    done = {(kind, task, max(i, j)) for kind, task, i, j in zip(*episodes, strict=True) if kind != "handback"}
    return [unit for unit in units if _place(unit.key) not in done]


def job_of(
    settings: Settings,
    environments: Environments,
    spending: Spending,
    *,
    student: Policy,
    teacher: Policy,
    books: Callable[[str], Books],
) -> Job:
    """What every unit's work needs; `books` are those of a role."""
    tokenizer = traits_of(student).tokenizer
    teacher_ids = bool(tokenizer) and traits_of(teacher).tokenizer == tokenizer
    if traits_of(student).paid:
        student = metered(student, _meter("student", settings, spending, books("student")))
    job = Job(
        recipe=settings.recipe,
        student=student,
        teacher=metered(teacher, _meter("teacher", settings, spending, books("teacher"))),
        student_name=settings.student,
        teacher_name=settings.teacher,
        environment=environments.version,
        seed=settings.seed,
        wall_s=settings.wall_s,
        end_on=settings.end_on,
        switch_prompt=settings.switch_prompt,
        switch_weights=settings.switch_weights,
        live=_live(environments),
        forks=getattr(environments, "forks", False),
        teacher_ids=teacher_ids,
    )
    if spending.by_continuation and spending.axis != "training":
        job = replace(job, cost=_teacher_tokens)
    return replace(job, handback=settings.handback, replicates=settings.replicates) if settings.pilot else job


async def play_unit(unit: Unit, environments: Environments, job: Job) -> Rows | NotOpened:
    """The rows of one unit; a world that does not open has rows too."""
    play = proposal if unit.key.kind == "rollout" else demonstration
    opened = False
    try:
        async with environments.open(unit.key.task) as env:
            opened = True
            rows = await play(Stage(env, job, unit.order), unit.key)
    except EnvironmentFailed as error:
        if opened:
            raise
        return NotOpened(unopened(job, unit.key, error), str(error))
    why = never_began(rows)
    return rows if why is None else NotOpened(rows, why)


def _teacher_tokens(rows: Rows) -> int:
    return sum(turn["output_tokens"] for turn in rows.get("turns", ()) if turn["author"] == Author.TEACHER)


def _proposals(settings: Settings, tasks: Sequence[Task]) -> dict[str, int]:
    unknown = sorted(set(settings.n_of_task) - {task.task_id for task in tasks})
    if unknown:
        raise InputError(
            f"n is given for {unknown[0]!r}, which --tasks {settings.tasks} does not name: leave it out, or "
            f"name the task"
        )
    return {task.task_id: settings.n_of_task.get(task.task_id, settings.recipe.n) for task in tasks}


def _refuse_live(settings: Settings, environments: Environments) -> None:
    if settings.pilot:
        raise InputError(
            f"a pilot in {environments.name}, which can be neither replayed nor forked: hand-backs need one "
            f"of the two; collect with a fixed switch law instead"
        )
    refuse_live(settings.recipe, environments.version)


def _meter(role: str, settings: Settings, spending: Spending, books: Books) -> Meter:
    name = settings.teacher if role == "teacher" else settings.student
    limited = spending.budget is not None and not spending.by_continuation
    return Meter(
        books,
        role,
        name,
        price=None if spending.prices is None else spending.prices.find(name),
        bounded=limited and (role == "teacher" or spending.axis == "money"),
        money=limited and spending.axis == "money",
        turn_tokens=spending.turn_tokens,
        retries=spending.retries,
        backoff_s=spending.backoff_s,
    )


def _live(environments: Environments) -> bool:
    return environments.replay is Replay.NONE and not getattr(environments, "forks", False)


def _place(key: Key) -> tuple[str, str, int]:
    return key.kind, key.task.task_id, max(key.rollout, key.continuation)
