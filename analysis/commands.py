"""`fewsteps demo`."""

from __future__ import annotations

import argparse

from occupancy.record.show import add_json, show


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
    from analysis.demo import demo
    from analysis.plan.answer import table

    made = demo(given.out)
    report = {"plan": made.plan.to_dict(), "figure": str(made.figure), "page": str(made.page)}
    show(given, report, lambda: [table(made.plan), f"figure {made.figure}\npage   {made.page}"])
    return 0
