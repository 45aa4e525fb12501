"""A workshop whose students are scripted: real games and Algorithm 1, without a model.

A training writes how many teacher tokens it saw; the student errs less the more there were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentloop.policies.by_name import open_environments, open_policy
from agentloop.run.collect import collect
from agentloop.run.evaluate import Evaluation, evaluate
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.types import Setup
from analysis.study.jobs import Collect, Job, Student, Train
from occupancy.record.errors import BudgetStopped
from occupancy.runs import open_run

ERRORS = {"alfworld": ("lapse", "wrong", "loop"), "hotpotqa": ("vague", "hasty", "astray")}
"""Settings of each environment's scripted student that a training lowers."""


def open_workshop(equipment: Mapping[str, Any], study: Path, *, gpus: int | None = None) -> Scripted:
    """Of [equipment] env, and settings of the environment."""
    return Scripted(**equipment)


class Scripted:
    """A `Workshop` in this process."""

    def __init__(self, env: str, half: float = 2000.0, **settings: Any) -> None:
        self.environments: Any = open_environments(env, **settings)
        self.env, self.half = env, half

    async def do(self, job: Job) -> Path:
        """The folder of the job's result."""
        if isinstance(job, Train):
            job.out.mkdir(parents=True, exist_ok=True)
            (job.out / "student.json").write_text(json.dumps(self.trained(job.folders)), "utf-8")
        elif isinstance(job, Collect):
            await self.collect(job)
        else:
            await self.evaluate(job)
        return job.out

    def trained(self, folders: tuple[Path, ...]) -> str:
        """The policy that a training ends with."""
        runs = [open_run(folder).read("traces", columns=["C_tr"]) for folder in folders]
        tokens = sum(sum(rows["C_tr"].to_pylist()) for rows in runs)
        error = 0.2 / (1 + tokens / self.half)
        return "scripted:" + ",".join(f"{name}={error:.4f}" for name in ERRORS[self.env])

    async def collect(self, job: Collect) -> None:
        student = job.student
        name = json.loads((student / "student.json").read_text()) if isinstance(student, Path) else student
        settings = Settings(job.recipe, name, job.teacher, job.tasks, job.seed, env=self.env, **job.settings)
        policies = open_policy(name, self.environments), open_policy(job.teacher, self.environments)
        with suppress(BudgetStopped):
            await collect(job.out, Setup(settings, self.environments, *policies, SpendingLimits(job.budget)))

    async def evaluate(self, job: Student) -> None:
        name = self.trained(job.folders)
        asked = Evaluation(name, job.tasks, job.attempts, job.evaluation_seed)
        policy = open_policy(name, self.environments)
        await evaluate(job.out, asked, environments=self.environments, policy=policy)

    async def close(self) -> None:
        """End the environments' processes."""
        if hasattr(self.environments, "close"):
            await self.environments.close()
