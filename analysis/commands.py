"""`fewsteps demo`."""

from __future__ import annotations

import argparse


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
    demo.add_argument("--json", action="store_true", help="one JSON object on standard output")
    demo.set_defaults(handler=_demo)


def _demo(given: argparse.Namespace) -> int:
    import json

    from analysis.demo import demo

    made = demo(given.out)
    if given.json:
        report = {"plan": made.plan.to_dict(), "figure": str(made.figure), "page": str(made.page)}
        print(json.dumps(report))  # noqa: T201
        return 0
    from rich.console import Console

    from analysis.plan.answer import table

    console = Console()
    console.print(table(made.plan))
    console.print(f"figure {made.figure}\npage   {made.page}", highlight=False, markup=False)
    return 0
