"""A worker process of a study: one engine, one pool of environments, and a trainer process beside them.

The next job's training runs while the last one's student plays. A workshop starts it as
`python -m analysis.study.worker`, one a GPU, and asks as `analysis.study.lines` says.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from agentloop.policies.by_name import open_environments, open_policy, takes, token_policy
from agentloop.policies.one_engine import OneEngine
from agentloop.policies.token_policy import TokenPolicy
from agentloop.run.collect import collect
from agentloop.run.evaluate import Evaluation, evaluate
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.types import Setup
from agentloop.types import Closes, Environments, Policy
from analysis.study import lines
from analysis.study.jobs import Collect, Equipment, Job, Student, Train, from_json, to_json
from analysis.study.results import FILE, finish, finished, sampling, student_name
from occupancy.record.errors import BudgetStopped, RunError
from occupancy.record.reading import read_json
from occupancy.runs import only_writer

SPENDING = frozenset(field.name for field in fields(SpendingLimits)) - {"budget"}
"""Of a `Collect` job's settings, those of what it may spend."""


class Worker:
    """Does jobs; up to two at a time, one of which trains."""

    def __init__(self, equipment: Equipment, study: Path, *, log: Path) -> None:
        self._equipment, self._study, self._log = equipment, study, log
        self._engine = OneEngine()
        self._environments: Environments | None = None
        # Both take a minute, in which jobs that need neither go on.
        self._trainer = asyncio.create_task(self._start_trainer())
        self._loading = asyncio.create_task(self._policy(equipment.base).load())
        self._stage = asyncio.Lock()
        """Held by the one job that plays."""

    async def do(self, job: Job) -> Path:
        """The job's result."""
        if (found := finished(job, self._equipment, self._study)) is not None:
            return found
        match job:
            case Train():
                return await self._train(job)
            case Student():
                return await self._student(job)
            case Collect():
                return await self._collect(job)

    async def close(self) -> None:
        """End everything that was started here."""
        self._loading.cancel()
        with suppress(lines.WorkerDied):
            await (await self._trainer).end(wait_s=1.0)
        await _close(self._environments)
        await self._engine.close()

    async def _student(self, job: Student) -> Path:
        folder = job.out.with_name(f"{job.out.name}.training")
        training = Train(job.folders, job.seed, folder, job.settings)
        checkpoint = finished(training, self._equipment, self._study) or await self._train(training)
        of_training = read_json(folder / FILE)
        name = student_name(job.out, self._equipment, self._study)
        settings = Evaluation(name, job.tasks, job.attempts, job.evaluation_seed)
        async with self._playing(checkpoint) as (environments, policy, started):
            run = await evaluate(job.out, settings, environments=environments, policy=policy)
        seconds = of_training["seconds"] | {"evaluate": time.monotonic() - started}
        with only_writer(run.folder):
            if not run.read("trainings").num_rows:
                run.commit({"trainings": [of_training["training"]]})
        self._finish(job, seconds)
        if not job.keep:
            shutil.rmtree(folder)
        return job.out

    async def _train(self, job: Train) -> Path:
        trainer = await asyncio.shield(self._trainer)
        return Path(await trainer.ask(job=to_json(job)))

    async def _collect(self, job: Collect) -> Path:
        equipment = self._equipment
        settings = Settings(
            job.recipe,
            student_name(job.student, equipment, self._study),
            job.teacher,
            job.tasks,
            seed=job.seed,
            env=equipment.env,
            **{name: value for name, value in job.settings.items() if name not in SPENDING},
        )
        spending = {name: value for name, value in job.settings.items() if name in SPENDING}
        async with self._playing(job.student) as (environments, student, started):
            teacher = open_policy(job.teacher, environments)
            limits = SpendingLimits(job.budget, **spending)
            try:
                # What stopped at its budget is whole.
                with suppress(BudgetStopped):
                    await collect(job.out, Setup(settings, environments, student, teacher, limits))
            finally:
                await _close(teacher)
        self._finish(job, {"collect": time.monotonic() - started})
        return job.out

    @asynccontextmanager
    async def _playing(self, student: Path | str) -> AsyncIterator[tuple[Environments, Policy, float]]:
        """Environments, the student as a policy, and when it had both for itself."""
        if isinstance(student, Path):
            await asyncio.shield(self._loading)
        async with self._stage:
            started = time.monotonic()
            if self._environments is None:
                own = {"workers": self._equipment.workers} if takes(self._equipment.env, "workers") else {}
                settings = {**own, **self._equipment.env_settings}
                self._environments = open_environments(self._equipment.env, **settings)
            environments = self._environments
            policy = open_policy(student, environments) if isinstance(student, str) else self._policy(student)
            try:
                yield environments, policy, started
            except RunError as error:
                # The engine or the environments may be what has failed: another process does it again.
                raise lines.WorkerDied(str(error)) from error
            finally:
                await _close(policy)

    def _policy(self, student: Path | str) -> TokenPolicy:
        return token_policy(self._equipment.engine, sampling(self._equipment, student), engine=self._engine)

    async def _start_trainer(self) -> lines.Peer:
        trainer = await lines.start("analysis.study.trainer", log=self._log, own_group=False)
        await trainer.ask(equipment=to_json(self._equipment), study=str(self._study))
        return trainer

    def _finish(self, job: Job, seconds: dict[str, float]) -> None:
        finish(job, self._equipment, self._study, result=job.out, seconds=seconds)


async def _close(opened: object) -> None:
    if isinstance(opened, Closes):
        await opened.close()


async def main() -> None:
    """Answer until the workshop has gone."""
    made: list[Worker] = []

    async def answer(request: dict[str, Any]) -> str | None:
        if "equipment" in request:
            made[:] = [
                Worker(Equipment(**request["equipment"]), Path(request["study"]), log=Path(request["log"]))
            ]
            return None
        return str(await made[0].do(from_json(request["job"])))

    try:
        await lines.serve(answer)
    finally:
        for worker in made:
            await worker.close()


if __name__ == "__main__":
    asyncio.run(main())
