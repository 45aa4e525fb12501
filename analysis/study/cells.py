"""The cells of a sweep in the order in which they are done: the decisive ones first, as time may run out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentloop.cuts.cut import Cell
from analysis.curves.arms import Arm
from analysis.study.config import PURE_BC, Sweep
from occupancy.record.recipe import K_text, Recipe


@dataclass(frozen=True)
class SweepCell:
    """One student: what it is trained on beside D_BC and the pilot's traces, and the seed of both."""

    arm: Arm
    budget: int
    """C_i, in teacher tokens."""
    seed: int
    """Of the order of tasks in the cut, and of the training."""

    @property
    def name(self) -> str:
        """Of its folder."""
        arm = self.arm
        depth = f"-K{K_text(arm.K)}-r{arm.r:g}" if arm.r else ""
        traces = "" if arm.pilot_traces == "success" else "-all"
        return f"{arm.recipe}{depth}{traces}-{self.budget}-s{self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"name": self.name, **self.arm.to_dict(), "budget": self.budget, "seed": self.seed}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> SweepCell:
        """The cell of `to_dict`."""
        return cls(Arm.from_dict(told), told["budget"], told["seed"])

    def cut_of(self, like: Recipe) -> Cell:
        """What is cut from the collection."""
        return Cell(self.arm.recipe_of(like), r=self.arm.r, budget=float(self.budget), seed=self.seed)


def decisive(sweep: Sweep, recommended: Mapping[int, Arm], budget: int) -> list[Arm]:
    """Arms that are compared over several seeds at a budget: the plan's choice, pure BC and the rivals."""
    named = [arm for name in sweep.rivals for arm in sweep.arms if arm.name == name]
    return list(dict.fromkeys([recommended[budget], PURE_BC, *named]))


def cells_of(sweep: Sweep, recommended: Mapping[int, Arm]) -> list[SweepCell]:
    """Every cell, in order: at the target budget the first seed of all arms and then the further seeds of the
    decisive ones, the same at the other budgets, at last the fractions of the target that are no budgets.

    recommended: the plan's choice at each budget.
    """
    found: list[SweepCell] = []
    others = list(reversed(sweep.budgets[:-1]))
    for budgets in ([sweep.target], others):
        # Half a sweep at every budget says more than a whole one at some.
        for seed in range(max(sweep.seeds, sweep.decisive_seeds)):
            for budget in budgets:
                first = decisive(sweep, recommended, budget)
                found += [SweepCell(arm, budget, seed) for arm in first if seed < sweep.decisive_seeds]
                rest = [arm for arm in sweep.arms if arm not in first and seed < sweep.seeds]
                found += [SweepCell(arm, budget, seed) for arm in rest]
    # Large differences between fractions are seen first at the one that a rival would run: the middle one.
    for share in sorted(sweep.fractions, key=lambda share: abs(share - 0.25)):
        budget = round(share * sweep.target)
        found += [
            SweepCell(arm, budget, 0) for arm in dict.fromkeys([*sweep.arms, recommended[sweep.target]])
        ]
    return list(dict.fromkeys(found))
