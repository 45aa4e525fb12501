"""A plan in plain words, and as a table for a person: at most ten rows, within 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.plan.doubts import FARTHEST, PILOT_SHARE
from analysis.plan.pilot import LEAST_TASKS
from analysis.plan.report import Candidate, Plan
from occupancy.record.recipe import K_text

if TYPE_CHECKING:
    from rich.console import RenderableType

WARNINGS = 3
"""Shown to a person; `--json` has all."""
STANDS_OUT = 0.5
"""P(best) of the recommendation below which it is also summed over recipes, r and K."""
SMALL = 0.05
"""Sums of P(best) below are not told."""
WORTH_SAYING = 1.25
"""Times the budget that is worth it, from which on the answer begins with that."""
LONGEST = 10**15
"""Numbers from here on are written with an exponent."""


def sentences(plan: Plan) -> list[str]:
    """What to do first, what to buy, what it brings, how sure, what else, what would change it."""
    return [
        *_larger_pilot(plan),
        *_smaller_budget(plan),
        _buy(plan),
        _brings(plan),
        *_as_good(plan),
        *_where_the_best_is(plan),
        _evidence(plan),
        _change(plan),
        _worth(plan),
        *(f"{one['said']}" for one in plan.what_if),
        *(f"Warning: {warning}" for warning in plan.warnings[:WARNINGS]),
        *_more_warnings(plan),
    ]


def table(plan: Plan, *, every: bool = False) -> RenderableType:
    """The sentences, then the best candidate of each recipe; `every`: all candidates."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    shows = "demon-\nstrations"
    heads = ("", "recipe", "K", "r", "pilot", "contexts", shows, "pass@1", "90 %", "loss", "P(best)")
    for name in heads:
        rows.add_column(name, justify="left" if name in ("", "recipe", "pilot") else "right", no_wrap=True)
    for c in shown(plan, every=every):
        rows.add_row(*_row(plan, c))
    lead, *rest = sentences(plan)
    note = (
        "* recommended, ~ not excluded at 90 %. pilot: which of its traces are trained on. loss: expected, "
        "in points, against the best. P(best): probability to be the best of all candidates."
    )
    return Group(
        Text(lead, style="bold"),
        Text(),
        *(Text(line) for line in rest),
        rows,
        Padding(Text(note, style="dim"), 0),
    )


def shown(plan: Plan, *, every: bool = False) -> Sequence[Candidate]:
    """The rows of the table: the best candidate of each recipe; `every`: all of them."""
    if every:
        return plan.candidates
    best: dict[str, Candidate] = {}
    for c in plan.candidates:
        best.setdefault(c.recipe, c)
    return list(best.values())


def _row(plan: Plan, c: Candidate) -> tuple[str, ...]:
    mark = "*" if c == plan.recommended else "~" if c in plan.not_worse else ""
    return (
        mark,
        c.recipe,
        str(K_text(c.K)),
        f"{c.r_tokens:.2f}",
        c.pilot_traces,
        count(c.contexts),
        count(c.demos),
        f"{c.pass_at_1:.3f}",
        f"{c.low:.2f}-{c.high:.2f}",
        f"{100 * c.regret:.1f}",
        f"{c.p_best:.0%}",
    )


def _larger_pilot(plan: Plan) -> Iterator[str]:
    """What to do about a pilot that is too small, or too expensive for the budget."""
    if plan.status != "pilot_too_small":
        return
    tasks, run = plan.pilot["tasks"], plan.pilot.get("folder", "RUN")
    if tasks < LEAST_TASKS:
        yield (
            f"Collect a larger pilot first: this one has {tasks} tasks, and nothing can be said from fewer "
            f"than {LEAST_TASKS}. `fewsteps plan {run} --design --budget {plan.budget:.10g}` says how large, "
            f"and prints the command that collects it."
        )
        return
    price, least = plan.pilot["price"], plan.pilot["price"] / PILOT_SHARE
    yield (
        f"Give a budget of at least {number(least)} (`--budget {math.ceil(least)}`): the pilot alone cost "
        f"{number(price)}, which is {price / plan.budget:.0%} of this one. Where the pilot is sunk, do not "
        f"charge it: `--already {run}`."
    )


def _smaller_budget(plan: Plan) -> Iterator[str]:
    """Where the last part of the budget brings next to nothing, or nobody knows what: what is worth it."""
    curve, known = plan.curve, FARTHEST * plan.pilot["price"]
    enough = math.inf if curve.enough is None else curve.enough
    less = float(f"{min(enough, known):.2g}")
    if plan.status == "pilot_too_small" or plan.budget < WORTH_SAYING * less:
        return
    if known < enough:
        yield (
            f"Spend {number(less)} first rather than {number(plan.budget)}: learning curves are known up to "
            f"{FARTHEST:g} times the pilot's cost, and what more brings is a guess. Plan again from what was "
            f"bought, or collect a larger pilot."
        )
        return
    levels = np.interp(np.log([less, plan.budget]), np.log(curve.budgets), curve.pass_at_1)
    yield (
        f"Of this budget the first {number(less)} are worth it: beyond that the next 1,000 teacher tokens "
        f"bring less than {100 * curve.least_gain:g} points of pass@1 each time, and the other "
        f"{number(plan.budget - less)} together {100 * (levels[1] - levels[0]):.1f} points. What follows is "
        f"for {number(plan.budget)}; `--budget {less:.10g}` plans the smaller one."
    )


def _where_the_best_is(plan: Plan) -> Iterator[str]:
    """P(best) summed over what a user decides, where it is spread over many candidates."""
    if plan.recommended.p_best >= STANDS_OUT:
        return
    headings = {"recipe": "by recipe", "r_tokens": "by r", "K": "by K where it is a choice"}
    told = []
    for what, shares in plan.p_best_by().items():
        largest = [f"{name} {share:.0%}" for name, share in shares.items() if share >= SMALL]
        told += [f"{headings[what]}: {', '.join(largest)}"] if largest else []
    yield f"No single candidate stands out. P(best) summed {'; '.join(told)}."


def _buy(plan: Plan) -> str:
    best = plan.recommended
    traces = (
        "the pilot's successful traces" if best.pilot_traces == "success" else "all of the pilot's traces"
    )
    what = {
        "pure-bc": f"{count(best.demos)} more demonstrations",
    }.get(
        best.recipe,
        f"{best.recipe} with K = {K_text(best.K)} and r = {best.r_tokens:g}: {count(best.contexts)} contexts "
        f"from {count(best.n)} rollout{'s' if best.n > 1 else ''} of each of {count(best.tasks)} tasks"
        + (f", and {count(best.demos)} demonstrations" if best.demos else ""),
    )
    lead = {
        "ranked": "Buy",
        "no_preference": "No preference; the best guess is",
        "pilot_too_small": "The best guess from this pilot is",
    }[plan.status]
    return f"{lead} {what}. Train on them and on {traces}."


def _brings(plan: Plan) -> str:
    best, bc = plan.recommended, plan.demonstrations
    level = (
        f"Expected pass@1 at a budget of {plan.budget:,.10g}: {best.pass_at_1:.3f} "
        f"(90 % interval {best.low:.3f} to {best.high:.3f})"
    )
    if bc is None or best.recipe == "pure-bc":
        return f"{level}."
    more = 100 * (best.pass_at_1 - bc.pass_at_1)
    said = f"{level}; {more:+.1f} points against more demonstrations alone ({bc.pass_at_1:.3f})"
    said += f", which it beats with probability {plan.p_beats_bc:.0%}."
    if plan.status == "no_preference":
        said += " That is below 90 %, so not even more demonstrations are excluded."
    return said


def _as_good(plan: Plan) -> Iterator[str]:
    others = [c for c in plan.not_worse if c != plan.recommended]
    if not others:
        return
    kinds: dict[str, Candidate] = {}
    for c in others:
        kinds.setdefault(c.recipe, c)
    named = "; ".join(f"{c.arm.name} ({c.pass_at_1:.3f})" for c in list(kinds.values())[:4])
    yield (
        f"{len(others)} of {len(plan.candidates)} candidates cannot be excluded at 90 %, the best of each "
        f"recipe: {named}. Choosing the recommended one loses {100 * plan.recommended.regret:.1f} points in "
        f"expectation against the best."
    )
    likeliest = max(plan.candidates, key=lambda c: c.p_best)
    if likeliest.p_best > plan.recommended.p_best + 0.05:
        yield (
            f"{likeliest.arm.name} has the larger chance to be the best ({likeliest.p_best:.0%} against "
            f"{plan.recommended.p_best:.0%}), but a lower expectation: it is less certain."
        )


def _evidence(plan: Plan) -> str:
    made = len(plan.trainings)
    if made:
        seconds = sum(t["seconds"] for t in plan.trainings)
        return (
            f"Evidence: {made} small training{'s' if made > 1 else ''} on cuts of the pilot "
            f"({seconds / 60:,.1f} minutes), and a prior over recipes."
        )
    return (
        "This is a guess: a prior over recipes, learnt in other worlds, and exact costs; nothing was "
        "trained. An hour of small trainings on this pilot (--trainer or --train) would narrow the bands and "
        "show whether on-policy data beat demonstrations; filtered recipes they hardly tell apart."
    )


def _change(plan: Plan) -> str:
    """Budgets at which another arm is expected to be best."""
    best = plan.recommended.arm.name
    spans: list[tuple[str, float, float]] = []
    for name, budget in zip(plan.curve.recipes, plan.curve.budgets, strict=True):
        if spans and spans[-1][0] == name:
            spans[-1] = (name, spans[-1][1], budget)
        else:
            spans.append((name, budget, budget))
    other = [
        f"{name} at {number(low)}" + (f" to {number(high)}" if high > low else "")
        for name, low, high in spans
        if name != best
    ]
    if not other:
        return (
            f"The same recipe is best at every budget from {number(plan.curve.budgets[0])} to "
            f"{number(plan.curve.budgets[-1])}; trainings that disagree would change the answer."
        )
    return f"Other budgets have another best: {', '.join(other)}."


def _worth(plan: Plan) -> str:
    curve = plan.curve
    points = ", ".join(
        f"{number(budget)}: {level:.3f}" for budget, level in zip(curve.budgets, curve.pass_at_1, strict=True)
    )
    said = f"What budgets are worth (pass@1 of the best): {points}."
    if any(_smaller_budget(plan)):
        return said  # The answer begins with where they stop to be.
    least = f"{100 * curve.least_gain:g} points"
    lowest = curve.budgets[0]
    if curve.enough is not None and curve.enough <= lowest:
        return (
            f"{said} Over all of this range the next 1,000 teacher tokens bring less than {least}: a budget "
            f"of {number(lowest)} would do as well."
        )
    if curve.enough is None:
        return f"{said} The next 1,000 teacher tokens bring more than {least} over all of this range."
    return f"{said} Beyond {number(curve.enough)} the next 1,000 teacher tokens bring less than {least}."


def _more_warnings(plan: Plan) -> Iterator[str]:
    more = len(plan.warnings) - WARNINGS
    if more > 0:
        yield f"{more} further warning{'s' if more > 1 else ''} in --json."


def number(value: float) -> str:
    """A number for a person."""
    return f"{value:,.0f}" if 100 <= value < LONGEST else f"{value:.3g}"


def count(value: int) -> str:
    """A count for a person."""
    return f"{value:,}" if value < LONGEST else f"{value:.3g}"
