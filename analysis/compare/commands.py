"""`fewsteps compare EVAL_A EVAL_B…`: which evaluation succeeds more often, and how sure that is."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from occupancy.record.show import add_json, show, table
from occupancy.record.specs import Few, Share, option

if TYPE_CHECKING:
    from analysis.compare.paired import Comparison, Difference


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

    from analysis.compare.arms import arms_of, check_arms
    from occupancy.runs import open_run

    arms = arms_of(given.evaluations)
    check_arms(arms, given.baseline)
    for folders in arms.values():
        for folder in folders:
            open_run(folder)
    from analysis.compare.paired import compare  # takes seconds: after everything that can be refused

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
    show(given, report, lambda: shown(found))
    return 0


def shown(found: Comparison) -> Iterator[Any]:
    """The comparison for a person: a sentence a difference, then both tables, within 80 columns."""
    from analysis.compare.paired import said

    letters = {arm: _letter(at) for at, arm in enumerate(dict.fromkeys(rate.arm for rate in found.rates))}
    named = {arm: f"{arm} ({letter})" for arm, letter in letters.items()}
    for d in found.differences:
        yield said(d, named)
    yield ""
    heads = ("", "pass@", "rate", "95 %", "SE", "tasks", "attempts", "trainings")
    yield table("success", heads, (_rate(rate, letters) for rate in found.rates), left=("",))
    heads = ("", "points", "95 %", "SE", "p", "p (Holm)", "could see", "tasks")
    yield table("paired differences", heads, (_row(d, letters) for d in found.differences), left=("",))
    yield (
        "Errors are clustered by task. could see: smallest difference found in 80 % of\n"
        "repetitions, at 5 % over all differences together."
    )
    if any(r.interval == "wilson" for r in found.rates) or any(
        d.interval == "newcombe" for d in found.differences
    ):
        yield (
            "Where all tasks of an evaluation agree, its interval is Wilson's with tasks as\n"
            "trials, and that of a difference from it Newcombe's."
        )
    yield from found.cautions


def _letter(at: int) -> str:
    return chr(ord("A") + at) if at < 26 else f"A{at - 25}"


def _rate(rate: Any, letters: dict[str, str]) -> Sequence[object]:
    between = "-" if rate.low is None else f"{rate.low:.3f}-{rate.high:.3f}"
    se = "-" if rate.se is None else f"{rate.se:.3f}"
    counts = rate.tasks, rate.attempts, rate.trainings
    return (letters[rate.arm], rate.k, f"{rate.rate:.3f}", between, se, *counts)


def _row(d: Difference, letters: dict[str, str]) -> Sequence[object]:
    points = (d.se, d.detectable)
    se, seen = ("-" if x is None else f"{100 * x:.1f}" for x in points)
    between = "-" if d.low is None or d.high is None else f"{100 * d.low:+.1f} to {100 * d.high:+.1f}"
    p, adjusted = ("-" if x is None else "<.001" if x < 0.001 else f"{x:.3f}" for x in (d.p, d.p_holm))
    return (
        f"{letters[d.b]}-{letters[d.a]}",
        f"{100 * d.difference:+.1f}",
        between,
        se,
        p,
        adjusted,
        seen,
        d.tasks,
    )
