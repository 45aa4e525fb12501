"""A workshop in a simulated world: a whole study in seconds, without a model and without a GPU.

workshop = "analysis.study.laboratory:open_workshop"
[equipment]
world = "short/7"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from agentloop.run.types import seed_of
from analysis.study.config import count, numbered
from analysis.study.jobs import Collect, Job, Student, Train
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import InputError
from occupancy.record.recipe import Recipe
from occupancy.record.rows import Row, evaluation_row
from occupancy.runs import create_run
from simulate.pilots.playing import PilotSize, pilot_rows
from simulate.pilots.trainer import WorldTrainer
from simulate.pipelines.outcome import chances_of
from simulate.worlds.types import Float64, World
from simulate.worlds.worldfile import load_world

_LAW = "law.npy"


def open_workshop(equipment: Mapping[str, Any], study: Path, *, gpus: int | None = None) -> Laboratory:
    """The workshop of the world that [equipment] names.

    Args:
        equipment: the config's table.
        study: the study's folder, which a world needs nothing of.
        gpus: workers that were asked for; a world is played in this process, a job after the other.
    """
    if set(equipment) != {"world"}:
        raise InputError(f"[equipment] has {', '.join(equipment) or 'nothing'}: a laboratory expects world")
    return Laboratory(load_world(str(equipment["world"])))


@dataclass(frozen=True, eq=False)
class Laboratory:
    """Does jobs in a world; see `analysis.study.jobs.Workshop`. Each job is done whole or not at all."""

    world: World

    async def do(self, job: Job) -> Path:
        """The folder of the job's result."""
        if not job.out.exists():
            with whole_folder(job.out) as draft:
                if isinstance(job, Train):
                    np.save(draft / _LAW, WorldTrainer(self.world).law(job.folders))
                elif isinstance(job, Collect):
                    self._collect(job, draft)
                else:
                    self._evaluate(job, draft)
        return job.out

    async def close(self) -> None:
        """There is nothing to end."""

    def _collect(self, job: Collect, folder: Path) -> None:
        bc = job.recipe.rho == "teacher"
        pilot = bool(job.settings.get("pilot"))
        split, start, stop = numbered(job.tasks)
        n = stop - start
        size = PilotSize(
            tasks=n,
            rollouts=0 if bc else job.recipe.n,
            demos=n if bc else int(job.settings.get("demo_tasks", 40)) if pilot else 0,
            handback=tuple(job.settings.get("handback", (0, 1, 2, 3, 5))) if pilot else (),
            replicates=int(job.settings.get("replicates", 1)),
        )
        seed = seed_of("laboratory", job.seed, split, start) % 2**32
        law = np.load(job.student / _LAW) if isinstance(job.student, Path) else None
        # Every part of a split has other tasks.
        at = f"{split}/{start}-"
        recipe, info, rows = pilot_rows(
            self.world, size=size, student=law, seed=seed, recipe=job.recipe, prefix=at
        )
        own = {"tasks": job.tasks, "n_tasks": n, "kind": "pilot" if pilot else "collect"}
        create_run(folder, recipe, info | own).commit(rows)

    def _evaluate(self, job: Student, folder: Path) -> None:
        law = WorldTrainer(self.world).law(job.folders)
        recipe = Recipe("evaluation", teacher="none", T_max=self.world.horizon)
        info = {
            "kind": "evaluation",
            "environment": f"world {self.world.name}",
            "student": "student",
            "tasks": job.tasks,
            "n_tasks": sum(count(spec) or 0 for spec in job.tasks.split("+")),
            "attempts": job.attempts,
        }
        run = create_run(folder, recipe, info)
        luck = int.from_bytes(blake2b(law.tobytes() + job.seed.to_bytes(8), digest_size=4).digest())
        run.commit({"evaluations": self._scores(law, job, luck)})

    def _scores(self, law: Float64, job: Student, luck: int) -> list[Row]:
        chance, rows = chances_of(self.world, law), []
        for spec in job.tasks.split("+"):
            split, first, stop = numbered(spec)
            n = stop - first
            at = seed_of("games", split) % 2**32
            # Task q of a split is the same first state in every evaluation.
            starts = np.random.default_rng([at, 0]).choice(self.world.S, size=stop, p=self.world.start)
            won = (
                np.random.default_rng([at, job.evaluation_seed, luck]).random((n, job.attempts))
                < chance[starts[first:]][:, None]
            )
            rows += [
                evaluation_row(
                    "student", f"{split}/game-{first + q:05d}", attempt=i, score=float(R), status="finished"
                )
                for q, row in enumerate(won)
                for i, R in enumerate(row)
            ]
        return rows
