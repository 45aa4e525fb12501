"""The stages of a study, in order: each goes on from the study's folder alone, on whatever machine."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.plan.planner import plan
from analysis.plan.report import Plan
from analysis.plan.trainer import Bench, Effort
from analysis.study.accounts import left_of, undone
from analysis.study.cells import SweepCell
from analysis.study.config import StudyConfig, read_study
from analysis.study.jobs import Collect, Student
from analysis.study.registration import bench_name, check_registration, refuse_other, register
from analysis.study.verdict import write_verdict
from analysis.study.work import Study, every
from occupancy.record.drafts import write_whole
from occupancy.record.errors import BudgetStopped, DataError, FewstepsError, InputError, RunError
from occupancy.record.recipe import Recipe, preset
from occupancy.runs import open_run

POLL_S = 0.2
"""Between looks for a free place while a collection runs."""


def stages_to(last: str) -> tuple[str, ...]:
    """The stages up to and with `last`."""
    if last not in STAGES:
        raise InputError(f"--stop-after {last}: expected one of {', '.join(STAGES)}")
    return STAGES[: STAGES.index(last) + 1]


async def carry_out(study: Study, *, stop_after: str = "verdict") -> None:
    """Do what is left of a study, up to and with a stage; the verdict is then in its folder.

    Whatever ends the sweep, there is a verdict on the cells that are done, and the same call goes on.

    Args:
        study: Folder, config, GPUs and minutes.
        stop_after: The last stage that is done.

    Raises:
        BudgetStopped: The minutes are over.
        RunError: A job failed.
    """
    stages = stages_to(stop_after)
    left_undone: FewstepsError | None = None
    try:
        for stage in stages:
            if stage == "collection" and "sweep" in stages:
                continue  # the sweep begins with cells that need no collection
            for left in left_of(study.folder, study.config, at_once=study.at_once):
                if left.jobs and (left.stage == stage or (stage, left.stage) == ("sweep", "collection")):
                    study.say(str(left))
            try:
                await _STEPS[stage](study)
            except (BudgetStopped, RunError) as stopped:
                if stage != "sweep":
                    raise
                left_undone = stopped  # the verdict is on the cells that there are
            except DataError as few:
                if left_undone is None:
                    raise
                study.say(f"no verdict yet: {few}")
    finally:
        await study.close()
    if left_undone is not None:
        raise left_undone


def begin(folder: Path, file: str | Path) -> StudyConfig:
    """The config of `file`, kept in the study's folder; another one than was begun with is refused."""
    config, kept = read_study(file), folder / "study.toml"
    if kept.exists():
        refuse_other(read_study(kept), config, folder)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(kept, Path(file).read_text("utf-8"))
    check_registration(folder, config)
    return config


def _recipe(config: StudyConfig, name: str = "op-short", **changes: Any) -> Recipe:
    changes |= {} if name == "pure-bc" else {"K": "inf"}
    return preset(name, teacher=config.teacher, T_max=config.T_max, success_at=config.success_at, **changes)


async def _demonstrations(study: Study) -> None:
    config, given = study.config, study.config.demonstrations
    recipe = _recipe(config, "pure-bc")
    first = Collect(recipe, config.teacher, config.teacher, given.first, None, config.seed, study.first)
    more = replace(first, tasks=given.more, out=study.first.with_name("more"))
    await every(
        [study.collected(first, "demonstrations"), study.collected(more, "demonstrations", parts=given.parts)]
    )


async def _pi_1(study: Study) -> None:
    if not all((study.folder / name).exists() for name in ("pilot", "collection")):
        await study.pi_1()


async def _pilot(study: Study) -> None:
    config, given, final = study.config, study.config.pilot, study.folder / "pilot"
    if final.exists():
        return
    student = await study.pi_1()
    asked = {name: getattr(given, name) for name in ("handback", "replicates", "demo_tasks")}
    asked["pilot"] = True
    job = Collect(_recipe(config), student, config.teacher, given.tasks, None, config.seed, final, asked)
    await study.collected(job, "pilot", parts=given.parts)


async def _trainings(study: Study) -> None:
    file = study.folder / "plan.json"
    if file.exists():
        return
    loop, config, pilot = asyncio.get_running_loop(), study.config, study.folder / "pilot"

    def train(folders: list[Path], seed: int) -> Path:
        name, given = f"{folders[0].name}-{seed}", config.trainings
        out = study.folder / "work" / "trainings" / name
        cut, first = folders
        job = Student((first, cut), seed, out, given.tasks, given.attempts, config.training)
        made = study.made(job, study.folder / "trainings" / name, "trainings")
        return asyncio.run_coroutine_threadsafe(made, loop).result()

    def planned(budget: int, trainings: int) -> Plan:
        return plan(
            pilot,
            budget=budget,
            already=[pilot, study.first],
            pool=config.pool or None,
            seed=config.seed,
            bench=Bench(open_run(pilot), train, bench_name(config)),
            effort=Effort(trainings, at_once=min(study.at_once, config.trainings.at_once)),
            progress=study.say,
        )

    found: dict[str, Any] = {}
    study.workshop()  # says how many trainings there are at the same time
    for budget in reversed(config.sweep.budgets):
        trainings = config.trainings.count if budget == config.sweep.target else 0
        found[str(budget)] = (await asyncio.to_thread(planned, budget, trainings)).to_dict()
    write_whole(file, json.dumps(found, indent=1, allow_nan=False) + "\n")
    shutil.rmtree(pilot / "trainings", ignore_errors=True)  # cuts, made again where they are needed


async def _registration(study: Study) -> None:
    if not (study.folder / "registration.json").exists():
        await asyncio.to_thread(register, study.folder, study.config)
    study.say(check_registration(study.folder, study.config))


async def _collection(study: Study) -> None:
    config, given, final = study.config, study.config.collection, study.folder / "collection"
    if final.exists():  # it is the last one
        shutil.rmtree(study.folder / "pieces", ignore_errors=True)
        return
    student, recipe = await study.pi_1(), _recipe(config, n=given.n)
    job = Collect(recipe, student, config.teacher, given.tasks, None, config.seed, final)
    await study.collected(job, "collection", parts=given.parts)


async def _sweep(study: Study) -> None:
    waiting = undone(study.folder, study.config)
    if not waiting:
        return
    study.workshop()  # says how many cells there are at the same time
    collecting = asyncio.create_task(_collection(study))
    late: list[BudgetStopped] = []

    async def worker() -> None:
        while waiting and not late:
            ready = collecting.done() and collecting.exception() is None
            # While others collect, a free place is for cells that need no collection, whatever their order.
            others = [*filter(_without_collection, waiting)] if study.has_place else []
            open_now = waiting if ready else others
            if not open_now:
                if collecting.done():
                    return
                await asyncio.wait([collecting], timeout=POLL_S)
                continue
            cell = open_now[0]
            waiting.remove(cell)
            try:
                await _cell(study, cell)
            except BudgetStopped as stopped:
                late.append(stopped)

    # One more than there are places, so that the next cut is made while students are trained.
    await every([*(worker() for _ in range(study.at_once + 1)), collecting])
    if late:
        rest = len(undone(study.folder, study.config))
        raise BudgetStopped(f"{rest} cells at the end of the order are cut: {late[0]}")


def _without_collection(cell: SweepCell | str) -> bool:
    return isinstance(cell, str) or cell.arm.r == 0


async def _cell(study: Study, cell: SweepCell | str) -> None:
    """One student, evaluated; a name is that of a reference, trained on what was there before the sweep."""
    config, given = study.config, study.config.evaluation
    name, seed = (cell, config.seed) if isinstance(cell, str) else (cell.name, cell.seed)
    final = study.folder / "cells" / name
    final.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(cell, str):
        folders = [study.first]
        if cell == "pilot":
            folders.append(await asyncio.to_thread(study.own, "success"))
    else:
        told = final.with_name(f"{name}.json")
        try:
            folders, data = await asyncio.to_thread(study.cut_for, cell)
        except DataError as lacks:
            write_whole(told, json.dumps({"cannot": str(lacks)}) + "\n")
            study.say(f"{name} is left out: {lacks}")
            return
        write_whole(told, json.dumps(data) + "\n")
    out = study.folder / "work" / "cells" / name
    job = Student(tuple(folders), seed, out, given.tasks, given.attempts, config.training)
    await study.made(replace(job, evaluation_seed=config.seed), final, "sweep")
    shutil.rmtree(study.folder / "work" / "cuts" / name, ignore_errors=True)


async def _verdict(study: Study) -> None:
    study.say(await asyncio.to_thread(write_verdict, study.folder, study.config))


_STEPS: Mapping[str, Callable[[Study], Coroutine[Any, Any, None]]] = {
    "demonstrations": _demonstrations,
    "pi_1": _pi_1,
    "pilot": _pilot,
    "trainings": _trainings,
    "registration": _registration,
    "collection": _collection,
    "sweep": _sweep,
    "verdict": _verdict,
}
"""In order; `trainings` ends with the plan, and pure BC cells of the sweep do not wait for the collection."""
STAGES = tuple(_STEPS)
