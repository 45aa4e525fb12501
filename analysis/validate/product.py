"""The product in a world, for `analysis.validate.judge`: what it plans, and what it buys in rounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop.cuts.cut import Cell, cut
from analysis.plan.planner import plan
from analysis.plan.read import teacher_tokens
from analysis.plan.report import Candidate
from analysis.plan.trainer import Bench
from analysis.spend.rounds import Rounds, spend
from analysis.spend.state import decision, winner
from analysis.validate.judge import Guess, Planned, Trainer
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError
from occupancy.record.recipe import Recipe
from occupancy.runs import create_run, open_run
from simulate.pilots.playing import PilotSize, pilot_rows
from simulate.pilots.trainer import WorldTrainer
from simulate.worlds.types import World


def planned(folder: Path, budget: int, pool: int, seed: int, trainer: Trainer | None) -> Planned:
    """What `fewsteps plan` says of a pilot, with trainings where it is given a trainer."""
    bench = None if trainer is None else Bench(open_run(folder), trainer, "world")
    found = plan(folder, budget=budget, pool=pool, seed=seed, bench=bench)
    return Planned(found.status, _guess(found.recommended), tuple(map(_guess, found.candidates)))


def _guess(c: Candidate) -> Guess:
    return Guess(c.arm, c.pass_at_1, c.low, c.high)


@dataclass(frozen=True)
class WorldBuyer:
    """Collects in a world; see `analysis.spend.rounds.Buyer`. Whole continuations, cut to the recipe."""

    trainer: WorldTrainer

    def __call__(
        self, recipe: Recipe, budget: float, seed: int, out: Path, demonstrations: list[Path]
    ) -> None:
        """Collect into `out`; what is finished is left."""
        if (out / "run.json").exists():
            return
        bc = recipe.rho == "teacher"
        student = self.trainer.law(demonstrations) if demonstrations else None
        tasks = 40
        while True:
            size = PilotSize(tasks=tasks, demos=tasks if bc else 0, handback=())
            whole, info, rows = pilot_rows(
                self.trainer.world, size=size, student=student, seed=1000 + seed, prefix=f"round-{seed}-"
            )
            with TemporaryDirectory() as folder:
                run = create_run(Path(folder) / "whole", whole, info)
                run.commit(rows)
                try:
                    with whole_folder(out) as draft:
                        cut(run, Cell(recipe, r=float(not bc), budget=budget, seed=seed), draft)
                    return
                except DataError as few:
                    if "lacks" not in str(few) or tasks > 10**5:
                        raise
            tasks *= 2


def in_rounds(world: World, pilot: Path, budget: int, seed: int, folder: Path) -> tuple[Guess, float, float]:
    """What `fewsteps spend` bought last, the final student's exact pass@1, and C_i with the pilot's."""
    trainer = WorldTrainer(world)
    state = spend(
        Rounds(open_run(pilot), folder, budget, WorldBuyer(trainer), trainer, "world", seed=seed % 2**20)
    )
    last = decision(state)
    chosen = Guess(winner(state), last["pass_at_1"], last["low"], last["high"])
    J = trainer.exact([Path(name) for name in state["steps"]["final student"]["folders"]])
    return chosen, J, float(state["spent"] + sum(teacher_tokens(pilot)))
