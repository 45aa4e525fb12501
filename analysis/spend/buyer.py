"""The product's own buyer for `fewsteps spend`: collects in this process, each time on tasks of its own."""

from __future__ import annotations

import asyncio
import gc
import math
import random
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentloop.commands.arguments import opened_policies
from agentloop.policies.by_name import open_environments, takes
from agentloop.policies.chat_spec import address, identity
from agentloop.run.collect import collect, task_ids
from agentloop.run.plan_file import PlanFile
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.types import Setup
from analysis.plan.offers import proposal_tokens
from analysis.plan.pilot import Pilot
from analysis.plan.product import Product
from analysis.spend.state import charged
from occupancy.record.drafts import write_whole
from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading
from occupancy.record.recipe import Recipe
from occupancy.record.rows import Rows
from occupancy.record.show import progress
from occupancy.runs import open_run

MORE = 3.0
"""Times the proposals that the pilot's costs ask for: a budget ends a purchase, not their number. A trained
student's rollouts may pass a filter less often than the pilot's."""


@dataclass(frozen=True)
class ProductBuyer:
    """Collects with the plan's environment, student and teacher; see `analysis.spend.rounds.Buyer`."""

    plan: PlanFile
    pilot: Pilot
    product: Product
    """Trains the student of the rollouts, where they are not pi_0's."""
    workers: int = 2
    """Tasks at a time."""

    def __post_init__(self) -> None:
        if not self.plan.tasks:
            raise InputError("the plan names no split: set `tasks` in it, as the environment reads it")

    def __call__(
        self, recipe: Recipe, budget: float, seed: int, out: Path, demonstrations: list[Path]
    ) -> None:
        """Collect into `out`, or go on with it; stops at the budget."""
        tasks = self._tasks(out, seed)
        n = math.ceil(MORE * budget / max(proposal_tokens(self.pilot, recipe) * len(tasks), 1.0))
        student = self.plan.student
        if demonstrations:
            log = out.with_suffix(".log")
            student = self.product.train(demonstrations, out.with_name("pi_1"), seed=0, log=log)
        teacher = self.plan.teacher
        settings = Settings(
            Recipe.from_dict(recipe.to_dict() | {"n": n}),
            student=identity(student),
            teacher=identity(teacher),
            tasks=f"@{_list_of(out)}",
            seed=seed,
            served_by={"student": address(student), "teacher": address(teacher)},
            env=self.plan.environment,
            env_set=self.plan.env_set,
        )
        limits = SpendingLimits(budget=int(budget), turn_tokens=self.plan.turn_tokens)
        try:
            asyncio.run(self._collect(out, settings, limits, student))
        finally:
            _free_memory()

    async def _collect(self, out: Path, settings: Settings, limits: SpendingLimits, student: str) -> None:
        plan = self.plan
        workers = {"workers": self.workers} if takes(plan.environment, "workers") else {}
        environments = open_environments(plan.environment, **(workers | dict(plan.env_set)))
        spent = charged(out)
        async with opened_policies(environments, student, plan.teacher) as (own, teacher):
            with progress(f"spend: {out.name}") as advance:

                def committed(done: int, total: int, rows: Rows) -> None:
                    nonlocal spent
                    turns = rows.get("turns", ())
                    spent += sum(t["output_tokens"] for t in turns if t["author"] == "teacher")
                    advance(done, total, f"{spent:,.0f} of {limits.budget:,.0f} teacher tokens")

                setup = Setup(settings, environments, own, teacher, limits)
                await collect(out, setup, progress=committed)

    def _tasks(self, out: Path, seed: int) -> list[str]:
        """Tasks of a purchase, in order: none that is paid for, in another purchase or evaluated."""
        file, ids = _list_of(out), partial(task_ids, self.plan.environment, self.plan.env_set)
        paid = (Path(run) for run in (self.plan.pilot, *self.plan.beside))
        taken = set(ids(self.product.tasks)).union(*map(_played, paid))
        split = [task for task in ids(self.plan.tasks) if task not in taken]
        if not file.exists():
            if out.exists():
                raise DataError(f"{file} is missing, and {out} was bought on its tasks: restore it")
            bought = set[str]().union(*(_played(each.parent) for each in out.parent.glob("*/run.json")))
            free = [task for task in split if task not in bought]
            if not free:
                raise InputError(
                    f"every task of {self.plan.tasks!r} was bought on already: name a larger split in the "
                    f"plan's `tasks`"
                )
            random.Random(seed).shuffle(free)
            write_whole(file, "\n".join(free) + "\n")
        with reading(file):
            drawn = [task for task in file.read_text("utf-8").split("\n") if task]
        if not drawn or set(drawn) - set(split):
            raise DataError(f"{file} holds no tasks, or others than {out.name} can be bought on: restore it")
        return drawn


def _played(folder: Path) -> set[str]:
    """Tasks of a run."""
    return set(open_run(folder).column("episodes", "task_id"))


def _list_of(out: Path) -> Path:
    return out.with_suffix(".tasks")


def _free_memory() -> None:
    """Give back what a model in this process held on a GPU: trainings in other processes need it."""
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
