"""`fewsteps spend` in a world: a buyer that plays episodes there, and the final student's exact pass@1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop.cuts.cut import Cell, cut
from analysis.curves.arms import Arm
from analysis.plan.read import teacher_tokens
from analysis.spend.rounds import Rounds, spend
from analysis.spend.state import decision
from analysis.validate.judge import Guess
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError
from occupancy.record.recipe import Recipe
from occupancy.runs import create_run, open_run
from simulate.pilots.playing import PilotSize, pilot_rows
from simulate.pilots.trainer import WorldTrainer
from simulate.worlds.types import World


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
    """What was bought last, the final student's pass@1, and C_i with the pilot's."""
    trainer = WorldTrainer(world)
    state = spend(
        Rounds(open_run(pilot), folder, budget, WorldBuyer(trainer), trainer, "world", seed=seed % 2**20)
    )
    steps = state["steps"]
    last = decision(state)
    J = trainer.exact([Path(name) for name in steps["final student"]["folders"]])
    chosen = Guess(Arm.from_dict(last["arm"]), last["pass_at_1"], last["low"], last["high"])
    spent = state["spent"] + sum(teacher_tokens(pilot))
    return chosen, J, float(spent)
