"""Sweeps: every recipe at every K, r, budget and seed, as one compiled program, and a tidy table of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy import Recipe, RunError
from occupancy.record.recipe import K_text
from occupancy.record.shows import Shown, Shows
from simulate.pipelines.lanes import Pipeline, chunks, grid, lanes_of
from simulate.pipelines.order import LEDGER, PROPOSALS
from simulate.pipelines.outcome import MOST_PROPOSALS, tables_of, too_few
from simulate.solving.jax64 import double_precision
from simulate.worlds.students import Student
from simulate.worlds.types import Float64, Int64, World

if TYPE_CHECKING:
    import pandas as pd

CPU_LANES, GPU_LANES = 240, 3840


@dataclass(frozen=True, eq=False)
class Sweep(Shows):
    """Outcomes of a sweep, one row a pipeline."""

    pipelines: tuple[Pipeline, ...]
    J: Float64
    """[P] pass@1 of the final student."""
    ledger: Int64
    """[P, LEDGER] columns as `simulate.pipelines.order.LEDGER` names them."""
    world: str
    axis: str
    rounds: int
    student: Student

    def _shown(self) -> Shown:
        from simulate.pipelines.summary import means

        said = f"{len(self.pipelines):,} pipelines in {self.world}, at equal tokens ({self.axis})"
        heads = ["budget", "recipe", "K", "r", "J", "se", "seeds", "C_i", "C_tr"]
        return [f"{said}; J: mean pass@1 of the final student"], [means(self.frame())[heads]]

    def frame(self) -> pd.DataFrame:
        """Tidy table: one row a pipeline; costs in teacher tokens."""
        import pandas as pd

        columns: dict[str, Any] = {
            "world": self.world,
            "recipe": [p.recipe.name for p in self.pipelines],
            "recipe_hash": [p.recipe.hash for p in self.pipelines],
            "K": [str(K_text(p.recipe.K)) for p in self.pipelines],
            "r": [p.r for p in self.pipelines],
            "budget": [p.budget for p in self.pipelines],
            "matched_on": self.axis,
            "rounds": self.rounds,
            "student": repr(self.student),
            "seed": [p.seed for p in self.pipelines],
            "J": self.J,
        }
        columns |= {name: self.ledger[:, i] for i, name in enumerate(LEDGER)}
        frame = pd.DataFrame(columns)
        frame["C_i"] = frame["C_i_bc"] + frame["C_i_op"]
        frame["C_tr"] = frame["C_i_bc"] + frame["C_tr_op"]
        frame["r_tokens"] = frame["C_tr_op"] / frame["C_tr"].clip(lower=1)
        frame["r_tasks"] = frame["tasks_op"] / (frame["tasks_bc"] + frame["tasks_op"]).clip(lower=1)
        return frame


def sweep(
    world: World,
    *,
    recipes: Sequence[Recipe],
    budgets: Sequence[int],
    r: Sequence[float],
    seeds: int,
    axis: str = "inference",
    rounds: int = 1,
    keep_demos: bool = True,
    student: Student | None = None,
    seed: int = 0,
    lanes: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Outcomes of every recipe at every r, budget and seed, as one compiled program on CPU or GPU.

    Args:
        world: where it is played.
        recipes: compared, each at every r; their T_max is the world's.
        budgets: teacher tokens of each pipeline.
        r: fractions of the budget that the recipe gets; the rest buys demonstrations.
        seeds: pipelines of each.
        axis, rounds, keep_demos, student, seed: as of `simulate.truth`.
        lanes: pipelines that run side by side (0: 240 on a CPU, 3,840 on a GPU).
        progress: called with (done, of) after each chunk of `lanes`.

    Raises:
        InputError, RecipeError: no pipeline could play what is asked.
    """
    student = student or world.student
    pipelines = grid(world, recipes=recipes, budgets=budgets, r=r, seeds=seeds, axis=axis, rounds=rounds)
    J, ledgers, done = [], [], 0
    with double_precision():
        import jax

        lanes = lanes or (CPU_LANES if jax.default_backend() == "cpu" else GPU_LANES)
        parts = list(chunks(pipelines, min(lanes, len(pipelines))))
        distinct = max(len({p.first for p in part}) for part, _ in parts)

        from simulate.pipelines.batched import program

        tables = jax.device_put(tables_of(world))
        for part, real in parts:
            rows = lanes_of(part, seed=seed, horizon=world.horizon, distinct=distinct)
            values, ledger = program(
                tables,
                rows,
                T=world.horizon,
                student=student,
                rounds=rounds,
                keep_demos=keep_demos,
                most=MOST_PROPOSALS,
            )
            J.append(np.asarray(values)[:real])
            ledgers.append(np.asarray(ledger)[:real])
            done += real
            if progress is not None:
                progress(done, len(pipelines))
    out = Sweep(
        tuple(pipelines), np.concatenate(J), np.concatenate(ledgers), world.name, axis, rounds, student
    )
    starved = out.ledger[:, PROPOSALS] >= MOST_PROPOSALS
    if starved.any():
        raise RunError(too_few(pipelines[int(np.argmax(starved))].order.on_policy, world.name))
    return out
