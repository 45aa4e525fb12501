"""`fewsteps demo`: a plan from a real pilot with its small trainings, and what the sweep measured afterwards.

analysis/pilot/ is the pilot of the study in benchmarks/studies/alfworld, analysis/demonstrations/ the D_BC
that every student there was trained on; analysis/measured.json is what that study registered and measured at
its largest budget. benchmarks/studies/pack.py writes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.record.show import add_json, show, table

PILOT = Path(__file__).parent / "pilot"
D_BC = PILOT.with_name("demonstrations")
MEASURED = Path(__file__).parent / "measured.json"
BUDGET = 10_000
"""Teacher output tokens, beside the pilot's own."""
POOL = 3553
"""Games of ALFWorld's train split: the tasks that a budget can be spread over."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `demo`."""
    demo = commands.add_parser(
        "demo",
        help="plan from a real pilot on ALFWorld, and see what the sweep measured",
        description="Plan from the pilot and the small trainings that fewsteps brings; show what students "
        "that were trained afterwards reached; write a figure and a page.",
    )
    demo.add_argument(
        "--out", default="demo-output", metavar="DIR", help="folder to write (default: demo-output)"
    )
    add_json(demo)
    demo.set_defaults(handler=_demo)


def _demo(given: argparse.Namespace) -> int:
    from analysis.figures.plan import plan_figure
    from analysis.page import plan_page
    from analysis.plan.answer import table as answer
    from analysis.plan.planner import plan
    from analysis.study.telling import decided
    from occupancy.record.reading import read_json

    folder, measured = Path(given.out), read_json(MEASURED)
    folder.mkdir(parents=True, exist_ok=True)
    found = plan(PILOT, budget=BUDGET, already=[PILOT, D_BC], pool=POOL)
    figure, page = plan_figure(found, folder / "plan.png"), plan_page(found, folder / "plan.html")
    bought = decided(measured["primary"], measured["regret"])
    report = {"plan": found.to_dict(), "measured": measured, "figure": str(figure), "page": str(page)}
    show(
        given,
        report,
        lambda: [
            f"A student of 135M parameters (SmolLM2) has played a pilot of {found.pilot['tasks']} ALFWorld "
            f"games. What should the next {BUDGET:,} output tokens of its teacher buy?\n",
            answer(found),
            *_told(measured),
            f"figure {figure}\npage   {page}",
            f"Registered decision: {bought}",
        ],
    )
    return 0


def _told(measured: dict[str, Any]) -> Iterator[Any]:
    """The sweep beside its prediction, and what of the prediction held."""
    pi_1, pilot = (f"{measured['references'][name]:.3f}" for name in ("pi_1", "pilot"))
    yield (
        f"\nWhat the sweep measured. The prediction was registered on {measured['registered'][:10]}, by that "
        f"day's fewsteps, which did not count D_BC as the plan above does; then "
        f"{measured['cells']['evaluated']} students were trained, and each played 274 validation games "
        f"twice. pi_1 wins {pi_1} of them, with the pilot's successes {pilot}, and with "
        f"{measured['target']:,} teacher tokens beside the pilot:"
    )
    rows = [
        (
            arm["arm"],
            f"{arm['predicted']['pass_at_1']:.3f}",
            f"{arm['predicted']['low']:.2f}-{arm['predicted']['high']:.2f}",
            f"{arm['pass_at_1']:.3f}",
            f"{arm['se']:.3f}",
            str(arm["seeds"]),
        )
        for arm in sorted(measured["arms"], key=lambda arm: -arm["pass_at_1"])
    ]
    yield table("", ("recipe", "predicted", "90 %", "measured", "SE", "seeds"), rows, left=("recipe",))
    held, level = measured["coverage"]["over_demonstrations"], measured["coverage"]["pass_at_1"]
    order, half = measured["ranking"][0], measured["ranking"][-1]
    yield (
        f"{held['inside']:.0%} of {held['n']} leads over more demonstrations are inside their 90 % band. "
        f"Levels were predicted {-100 * level['bias']:.0f} points too low: {level['inside']:.0%} of "
        f"{level['n']} bands hold. The order of the recipes was hardly predicted: "
        f"{order['pair_accuracy']:.0%} of pairs, where one run at half of the budget has "
        f"{half['pair_accuracy']:.0%}. docs/study.md says why."
    )
