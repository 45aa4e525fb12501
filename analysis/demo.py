"""`fewsteps demo`: plan from a pilot that was really recorded on ALFWorld games, at three budgets.

The pilot in analysis/pilot/ was made by the command in analysis/pilot/README.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analysis.figures import plan_figure
from analysis.page import plan_page
from analysis.plan.planner import plan
from analysis.plan.report import Plan

PILOT = Path(__file__).parent / "pilot"
BUDGETS = (10_000, 100_000, 1_000_000)
"""Teacher output tokens, the pilot's own included."""
POOL = 3553
"""Games of ALFWorld's train split: the tasks that a budget can be spread over."""


@dataclass(frozen=True)
class Demo:
    """What the demo made."""

    plans: tuple[Plan, ...]
    figure: Path
    page: Path


def demo(folder: str | Path, *, pilot: str | Path = PILOT) -> Demo:
    """Plan at each budget and write plan.png and plan.html into `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plans = tuple(plan(pilot, budget=budget, pool=POOL) for budget in BUDGETS)
    figure = plan_figure(plans[-1], folder / "plan.png")
    page = plan_page(plans, pilot=Path(pilot), figure=figure, file=folder / "plan.html")
    return Demo(plans, figure, page)
