"""`fewsteps compare EVAL_A EVAL_B…`: which evaluation succeeds more often, and how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.compare.telling import shown
from occupancy.record.distinct import differences
from occupancy.record.errors import InputError
from occupancy.record.show import add_json, show
from occupancy.record.specs import Few, Share, option


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `compare`."""
    command = subparsers.add_parser(
        "compare",
        help="differences between evaluations, paired by task, with errors",
        description="Compare evaluations of the same tasks: success rates, differences paired by task with "
        "errors clustered by task, p-values adjusted for all of them, and the smallest difference that could "
        "have been found.",
    )
    add = command.add_argument
    add(
        "evaluations",
        nargs="+",
        metavar="[NAME=]EVAL",
        help="what `fewsteps evaluate` wrote; EVAL1,EVAL2 are trainings of one arm with other seeds",
    )
    add("--k", action="append", type=option(Few), default=[], help="report pass@k too; may be repeated")
    add("--baseline", metavar="NAME", help="compare all others with this one (default: every pair)")
    add("--success-at", type=option(Share), metavar="R", help="success is a reward of at least R")
    add("--scored", action="store_true", help="leave out attempts that ended in an error")
    add_json(command)
    command.set_defaults(handler=_compare)


def _compare(given: argparse.Namespace) -> int:
    from dataclasses import asdict

    from analysis.compare.paired import compare

    arms = arms_of(given.evaluations)
    found = compare(
        arms,
        k=(1, *given.k),
        success_at=given.success_at,
        scored=given.scored,
        baseline=given.baseline,
    )
    report = {
        "rates": [asdict(rate) for rate in found.rates],
        "differences": [asdict(d) | {"found": d.found} for d in found.differences],
        "cautions": list(found.cautions),
    }
    show(given, report, lambda: shown(found, _short(arms)))
    return 0


def _short(arms: dict[str, list[str]]) -> dict[str, str]:
    """Other names for arms that are named after their folders: what distinguishes these."""
    folders = [name for name, own in arms.items() if own == [name]]
    short = differences(folders)
    taken = {*short, *arms} - {*folders}
    return dict(zip(folders, short, strict=True)) if len(taken) == len(arms) else {}


def arms_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Name of each arm -> its folders, of texts [NAME=]EVAL[,EVAL…]."""
    arms = dict[str, list[str]]()
    for text in given:
        name, folders = _arm(text)
        if name in arms:
            raise InputError(f"{name} is given twice: expected every evaluation once, or a NAME= for each")
        arms[name] = folders
    return arms


def _arm(text: str) -> tuple[str, list[str]]:
    """Name and folders. "=" and "," may be part of a folder's name (lr=1e-5): what exists decides."""
    named = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == "="]
    for name, folders in ((text, text), *named):
        for each in ([folders], folders.split(",")):
            if all(Path(folder).exists() for folder in each):
                return name, each
    name, folders = named[0] if named else (text, text)
    return name, folders.split(",")
