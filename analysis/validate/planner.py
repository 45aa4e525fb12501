"""The planner that is validated, behind the small interface that `analysis.validate.judge` asks of one."""

from __future__ import annotations

from pathlib import Path

from analysis.plan.planner import plan
from analysis.plan.report import Candidate
from analysis.validate.judge import Arm, Planned, Trainer
from occupancy.record.errors import InputError

UNKNOWN_R = 0.5
"""r of a candidate that says nothing about it."""


def planned(folder: Path, budget: int, pool: int, seed: int, trainer: Trainer | None) -> Planned:
    """What `fewsteps plan` says of a pilot."""
    if trainer is not None:
        raise InputError("--trained: this planner makes no trainings; leave it out")
    found = plan(folder, budget=budget, pool=pool, seed=seed)
    return Planned(found.status, _arm(found.recommended), tuple(_arm(c) for c in found.candidates))


def _arm(c: Candidate) -> Arm:
    r = UNKNOWN_R if c.r_tokens is None else c.r_tokens
    return Arm(c.recipe, c.K, r, predicted=c.pass_at_1, low=c.low, high=c.high)
