"""`fewsteps demo`: plan from a pilot that was really recorded on ALFWorld games.

The pilot in analysis/pilot/ was made by the command in analysis/pilot/README.md. Nothing was trained on it,
as its student is scripted: the answer is a prior over recipes with exact costs, and says so.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from occupancy.record.show import add_json, show

PILOT = Path(__file__).parent / "pilot"
BUDGET = 100_000
"""Teacher output tokens, the pilot's own included."""
POOL = 3553
"""Games of ALFWorld's train split: the tasks that a budget can be spread over."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `demo`."""
    demo = commands.add_parser(
        "demo",
        help="plan from a pilot recorded on real ALFWorld games",
        description="Plan from the pilot that fewsteps brings; write a figure and a page.",
    )
    demo.add_argument(
        "--out", default="demo-output", metavar="DIR", help="folder to write (default: demo-output)"
    )
    add_json(demo)
    demo.set_defaults(handler=_demo)


def _demo(given: argparse.Namespace) -> int:
    from analysis.figures.plan import plan_figure
    from analysis.page import plan_page
    from analysis.plan.answer import table
    from analysis.plan.planner import plan

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    found = plan(PILOT, budget=BUDGET, pool=POOL)
    figure, page = plan_figure(found, folder / "plan.png"), plan_page(found, folder / "plan.html")
    report = {"plan": found.to_dict(), "figure": str(figure), "page": str(page)}
    show(given, report, lambda: [table(found), f"figure {figure}\npage   {page}"])
    return 0
