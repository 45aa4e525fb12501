"""The planner that is validated, behind the small interface that `analysis.validate.judge` asks of one."""

from __future__ import annotations

from pathlib import Path

from analysis.plan.planner import plan
from analysis.plan.report import Candidate
from analysis.plan.trainer import Bench
from analysis.validate.judge import Guess, Planned, Trainer
from occupancy.runs import open_run


def planned(folder: Path, budget: int, pool: int, seed: int, trainer: Trainer | None) -> Planned:
    """What `fewsteps plan` says of a pilot, with trainings where it is given a trainer."""
    bench = None if trainer is None else Bench(open_run(folder), trainer, "world")
    found = plan(folder, budget=budget, pool=pool, seed=seed, bench=bench)
    return Planned(found.status, _guess(found.recommended), tuple(_guess(c) for c in found.candidates))


def _guess(c: Candidate) -> Guess:
    return Guess(c.arm, c.pass_at_1, c.low, c.high)
