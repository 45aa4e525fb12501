"""The design of a pilot in plain words, the answer first, and as a table for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.text import Text

from analysis.plan.answer import WORTH_SAYING, number
from analysis.plan.command_lines import capitals
from analysis.plan.design import ADVISED, FALL_BACK, FALL_BACK_K, Design
from analysis.plan.doubts import FARTHEST, PILOT_SHARE
from occupancy.record.show import fitting_table


def table(found: Design) -> Group:
    """The design for a person: the answer in words, the sizes compared, and what it assumes."""
    unit = "money" if found.axis == "money" else "teacher tokens"
    title = f"Pilots compared, for a budget of {number(found.budget)} ({unit})"
    rows = fitting_table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rows.add_column("")
    names = (
        "tasks",
        "contexts",
        "demon-\nstrations",
        "cost",
        "of budget",
        "±\npass@1",
        "±\nG(K)",
        "student\nepisodes",
    )
    for name in names:
        rows.add_column(name, justify="right", no_wrap=True)
    for size in found.sizes:
        chosen = found.status == "designed" and size == found.size
        rows.add_row(
            "*" if chosen else "!" if size.share > PILOT_SHARE else "",
            *(f"{n:,}" for n in (size.tasks, size.continuations, size.demos)),
            number(size.price),
            f"{size.share:.1%}",
            f"{size.se_J:.3f}",
            f"{size.se_G:.3f}",
            f"{size.student_episodes:,}",
        )
    lead, *rest = sentences(found)
    legend = f"*: this pilot; !: above {PILOT_SHARE:.0%} of the budget; ±: expected standard errors."
    return Group(Text(lead, style="bold"), rows, Text(legend), *map(Text, rest))


def sentences(found: Design) -> Sequence[str]:
    """The design in words."""
    guessed = ", ".join(
        f"{name} = {'as the environment' if at['value'] is None else format(at['value'], '.4g')} "
        f"({at['source']})"
        for name, at in found.guesses.plain().items()
    )
    return [
        _answer(found),
        *_beyond(found),
        *_errors(found),
        f"Assumed: {guessed}.",
        *capitals(found.command),
    ]


def _answer(found: Design) -> str:
    """The pilot to buy, or what to buy without one."""
    size = found.size
    if found.status != "designed":
        return f"Buy no pilot: {found.reason}. Fall back on {FALL_BACK}."
    counted = (
        " (counted in words, as the run records no token usage: give --turn-tokens)"
        if found.guesses.counted_words
        else ""
    )
    few = (
        f" {size.continuations} contexts are few: {ADVISED} are advised, fewer exclude few candidates."
        if size.continuations < ADVISED
        else ""
    )
    lost = (
        f"; a plan for K = {FALL_BACK_K} would have done without about {size.lost:,.0f} of them"
        if size.lost >= 1
        else ""
    )
    return (
        f"Buy a pilot first: {size.continuations} continuations on {size.tasks} tasks, {size.demos} "
        f"demonstrations and {found.replicates} hand-backs after each of "
        f"{', '.join(map(str, found.handback))} teacher turns, about {size.tokens:,.0f} teacher tokens"
        f"{counted}, {size.share:.1%} of the budget. They are training data too{lost}.{few}"
    )


def _beyond(found: Design) -> Iterator[str]:
    """Which part of a large budget can be planned from the pilot, as the plan from it will say."""
    known = FARTHEST * found.size.price
    unit = "of money" if found.axis == "money" else "teacher tokens"
    if found.status == "designed" and found.budget >= WORTH_SAYING * known:
        yield (
            f"A plan from this pilot is for about {number(known)} of the {number(found.budget)}: learning "
            f"curves are known up to {FARTHEST:g} times a pilot's cost. Buy that much first and plan again "
            f"from all of it, or buy a pilot of about {number(found.budget / FARTHEST)} {unit}."
        )


def _errors(found: Design) -> Iterator[str]:
    """How exact the pilot would be, and from which budget on it pays."""
    size, least = found.size, number(found.smallest_budget)
    if found.status == "designed":
        yield (
            f"Expected standard errors: {100 * size.se_J:.1f} points of the student's pass@1 and "
            f"{100 * size.se_G:.1f} of G(K), the gain of K teacher turns before the student goes on. Four "
            f"times the cost halves them."
        )
    yield (
        f"A pilot is cost-effective from a budget of {least}: it then takes at most {PILOT_SHARE:.0%} of it."
    )
