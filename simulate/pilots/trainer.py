"""A trainer in a world: the world's student trained on run folders and played on new tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from occupancy.runs import open_run
from simulate.pilots.playing import TEACHER, add_label
from simulate.pipelines.outcome import chances_of
from simulate.worlds.types import Float64, World


@dataclass(frozen=True, eq=False)
class WorldTrainer:
    """What `fewsteps plan --trainer` is given in the laboratory: (run folders, seed) -> {task_id: [rewards]}.

    An evaluation task is a first state of the world; the student's chance of success from it is exact.
    """

    world: World
    tasks: int = 400
    """New tasks of an evaluation."""
    attempts: int = 1
    """Attempts at each."""

    def __call__(self, folders: Sequence[Path], seed: int) -> dict[str, list[float]]:
        """Rewards by task of a student trained on the accepted traces; equal seeds draw the same tasks."""
        chance = chances_of(self.world, self.law(folders))
        rng = np.random.default_rng([seed, 5])
        starts = rng.choice(self.world.S, size=self.tasks, p=self.world.start)
        won = rng.random((self.tasks, self.attempts)) < chance[starts][:, None]
        return {f"new-{q:05d}": [float(R) for R in row] for q, row in enumerate(won)}

    def exact(self, folders: Sequence[Path]) -> float:
        """pass@1 of that student, exact."""
        return float(self.world.start @ chances_of(self.world, self.law(folders)))

    def law(self, folders: Sequence[Path]) -> Float64:
        """[X, A] law of that student."""
        world, data = self.world, np.zeros_like(self.world.base)
        columns = ["episode_id", "author", "text", "output_tokens"]
        for folder in folders:
            run = open_run(folder)
            kept = set(run.column("traces", "episode_id"))
            for turn in run.read("turns", columns=columns).to_pylist():
                if turn["author"] == TEACHER and turn["episode_id"] in kept:
                    add_label(world, turn, data)
        return world.student.learn(world.base, world.features, data)
