"""`fewsteps demo`: plan from a pilot that was really recorded on ALFWorld games.

The pilot in analysis/pilot/ was made by the command in analysis/pilot/README.md. Nothing was trained on it,
as its student is scripted: the answer is a prior over recipes with exact costs, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.figures import plan_figure
from analysis.page import plan_page
from analysis.plan.planner import plan
from analysis.plan.report import Plan

PILOT = Path(__file__).parent / "pilot"
BUDGET = 100_000
"""Teacher output tokens, the pilot's own included."""
POOL = 3553
"""Games of ALFWorld's train split: the tasks that a budget can be spread over."""


@dataclass(frozen=True)
class Demo:
    """What the demo made."""

    plan: Plan
    figure: Path
    page: Path


def demo(folder: str | Path, *, pilot: str | Path = PILOT) -> Demo:
    """Plan from the pilot and write plan.png and plan.html into `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = plan(pilot, budget=BUDGET, pool=POOL)
    return Demo(found, plan_figure(found, folder / "plan.png"), plan_page(found, folder / "plan.html"))
