"""`fewsteps report RUN… --out FILE`: one page with the decision first, then evidence, method and versions."""

from __future__ import annotations

import argparse
from pathlib import Path

from occupancy.record.errors import InputError
from occupancy.record.show import add_json, show
from occupancy.record.specs import Count, amount, option


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `report`."""
    command = subparsers.add_parser(
        "report",
        help="one page of runs, evaluations, trainings and studies: the decision first",
        description="Write one self-contained page of any folders: what they decide, with figures, tables, "
        "method and versions. A pilot with --budget is planned; two evaluations or more are compared.",
    )
    add = command.add_argument
    add("folders", nargs="+", metavar="RUN", help="what collect, evaluate, train, study or spend wrote")
    add("--out", required=True, metavar="FILE", help="the page, an HTML file")
    add("--budget", type=option(amount), metavar="N", help="plan this many teacher tokens from the pilot")
    add("--pool", type=option(Count), metavar="N", help="tasks that the budget can be spread over")
    add("--already", nargs="+", action="extend", default=[], metavar="RUN", help="paid for, as of `plan`")
    add("--figures", metavar="DIR", help="write the figures there too, as PDF, PNG and SVG")
    add("--title", default="Report", help="of the page (default: Report)")
    add_json(command)
    command.set_defaults(handler=_report)


def _report(given: argparse.Namespace) -> int:
    from analysis.report.page import report, save_figures

    if given.figures is not None and Path(given.figures).is_file():
        raise InputError(f"--figures {given.figures!r}: expected the name of a folder")
    found = report(
        given.folders,
        given.out,
        budget=given.budget,
        pool=given.pool,
        already=given.already,
        title=given.title,
    )
    if given.figures is not None:
        save_figures(found, given.figures)
    told = {"out": given.out, "bytes": Path(given.out).stat().st_size, "decision": list(found.decision)}
    told |= {"figures": [one.title for one in found.evidence], "left_out": list(found.left_out)}
    left_out = [f"left out: {line}" for line in found.left_out]
    show(given, told, "\n".join([*found.decision, *left_out, "", f"page {given.out}"]))
    return 0
