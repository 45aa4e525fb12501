"""The product's own buyer for `fewsteps spend`: `fewsteps collect`, each time on tasks of its own."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.run.plan_file import PlanFile
from analysis.plan.pool import task_ids
from analysis.plan.product import Product, run_command
from occupancy.record.drafts import write_whole
from occupancy.record.errors import InputError, RunError
from occupancy.record.recipe import Recipe
from occupancy.runs import open_run

_DONE = (0, 3)
"""Exit codes of `fewsteps collect`: finished, or stopped at the budget."""


@dataclass(frozen=True)
class ProductBuyer:
    """Collects with the plan's environment, student and teacher; see `analysis.spend.rounds.Buyer`."""

    plan: PlanFile
    demo_tokens: float
    """Expected C_i of a demonstration."""
    context_tokens: Any
    """[T_max] expected C_i of a context at K = 1 .. T_max."""
    product: Product | None = None
    """Trains pi_1, where rollouts are to come from a student trained on demonstrations."""
    env_set: tuple[str, ...] = ()
    workers: int | None = None
    tasks: tuple[str, ...] = field(default=(), compare=False)
    """Task ids to buy on; empty: those of the plan's split."""

    def __call__(
        self, recipe: Recipe, budget: float, seed: int, out: Path, demonstrations: list[Path]
    ) -> None:
        """Collect into `out`, or go on with it; stops at the budget."""
        tasks = out.with_suffix(".tasks")
        if not tasks.exists():
            free = self._unused(out)
            if not free:
                raise InputError(
                    f"every task of {self.plan.tasks!r} was bought on already: name a larger split in the "
                    f"plan's `tasks`"
                )
            random.Random(seed).shuffle(free)
            each = self.demo_tokens if recipe.rho == "teacher" else self.context_tokens[_depth(recipe) - 1]
            n = max(math.ceil(1.3 * budget / max(each * len(free), 1.0)), 1)
            file = out.with_suffix(".recipe.toml")
            write_whole(file, Recipe.from_dict(recipe.to_dict() | {"n": n}).to_toml())
            write_whole(tasks, "\n".join(free) + "\n")
        student = self.plan.student if not demonstrations else self._student(demonstrations, out)
        given = ["--env", self.plan.environment.split()[0], "--recipe", str(out.with_suffix(".recipe.toml"))]
        given += ["--student", student, "--teacher", self.plan.teacher, "--tasks", f"@{tasks}"]
        given += ["--budget", str(int(budget)), "--seed", str(seed), "--out", str(out)]
        given += [] if self.plan.turn_tokens is None else ["--turn-tokens", str(self.plan.turn_tokens)]
        given += [f"--env-set={setting}" for setting in self.env_set]
        given += [] if self.workers is None else ["--workers", str(self.workers)]
        command = [sys.executable, "-m", "analysis.cli", "collect", *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode not in _DONE:
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
            raise RunError(f"{last}; what was bought is kept, the same command goes on")

    def _unused(self, out: Path) -> list[str]:
        used: set[str] = set()
        for folder in (Path(self.plan.pilot), *(file.parent for file in out.parent.glob("*/run.json"))):
            used |= set(open_run(folder).read("episodes", columns=["task_id"])["task_id"].to_pylist())
        return [task for task in self.tasks or self._split() if task not in used]

    def _split(self) -> list[str]:
        """Task ids of the plan's split, as its environment has them."""
        if not self.plan.tasks:
            raise InputError("the plan names no split: set `tasks` in it, as the environment reads it")
        return task_ids(self.plan.environment, self.plan.tasks)

    def _student(self, demonstrations: list[Path], out: Path) -> str:
        if self.product is None:
            raise InputError(
                "rollouts of a student that is trained on demonstrations need --train FILE.toml, which says "
                "how"
            )
        log = out.with_suffix(".log")
        given = [*map(str, demonstrations), "--base", self.product.base, "--preset", self.product.preset]
        report = run_command(
            ["-m", "analysis.cli", "train", *given, "--out", str(out.with_name("pi_1")), "--json"], log
        )
        return f"{self.product.engine}:{report['chosen']}"


def _depth(recipe: Recipe) -> int:
    return int(min(recipe.K, recipe.T_max))
