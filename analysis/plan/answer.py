"""A plan in plain words, and as a table for a person: at most ten rows, within 80 columns."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from analysis.curves.arms import Arm
from analysis.plan.doubts import FARTHEST, PILOT_SHARE
from analysis.plan.pilot import LEAST_TASKS
from analysis.plan.report import Candidate, Plan
from occupancy.record.recipe import MEANINGS, REPLAYS, K_text
from occupancy.record.show import fitting_table

TRACES = {"all": "all of the pilot's traces", "success": "the pilot's successful traces"}
FAR_BEYOND = 2.0
"""Times the largest training, from which on a forecast is called extrapolated."""
WARNINGS = 3
"""Shown to a person; `--json` has all."""
STANDS_OUT = 0.5
"""P(best) of the recommendation below which it is also summed over recipes, r and K."""
SMALL = 0.05
"""Sums of P(best) below are not told."""
WORTH_SAYING = 1.25
"""Times the budget that is worth it, from which on the answer says so."""
LONGEST = 10**15
"""Numbers from here on are written with an exponent."""


def sentences(plan: Plan) -> list[str]:
    """What to do first, what to buy, what it brings, how sure, what else, what would change it."""
    return [
        *_larger_pilot(plan),
        *_spend_less_first(plan),
        _buy(plan),
        f"{plan.recommended.recipe}: {MEANINGS[plan.recommended.recipe]}{_where(plan.recommended)}.",
        *_enough(plan),
        _brings(plan),
        *_without_demonstrations(plan),
        *_without_mixed(plan),
        *_as_good(plan),
        *_where_the_best_is(plan),
        _evidence(plan),
        _change(plan),
        _worth(plan),
        *_pool(plan),
        *(one["said"] for one in plan.what_if),
        *_warnings(plan),
    ]


def table(plan: Plan, *, every: bool = False) -> Group:
    """The sentences, then the best candidate of each recipe; `every`: all candidates."""
    rows = fitting_table(box=None, padding=(0, 1, 0, 0), header_style="dim")
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
        best.setdefault(c.bought, c)
    return list(best.values())


def _row(plan: Plan, c: Candidate) -> tuple[str, ...]:
    mark = "*" if c == plan.recommended else "~" if c in plan.not_worse else ""
    return (
        mark,
        c.bought.replace(" ", "\n"),  # a wider column does not fit
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
    tasks, price = plan.pilot["tasks"], plan.pilot["price"]
    run = shlex.quote(plan.pilot.get("folder", "RUN"))
    if tasks < LEAST_TASKS:
        yield (
            f"Collect a larger pilot first: this one has {tasks} tasks, and nothing can be said from fewer "
            f"than {LEAST_TASKS}. `fewsteps plan {run} --design --budget {plan.budget:.10g}` says how large, "
            f"and prints the command that collects it."
        )
    else:
        yield (
            f"Give a budget of at least {number(price / PILOT_SHARE)} (`--budget "
            f"{math.ceil(price / PILOT_SHARE)}`): the pilot alone cost {number(price)}, which is "
            f"{price / plan.budget:.0%} of this one. Where the pilot is sunk, do not charge it: "
            f"`--already {run}`."
        )


def _less(plan: Plan) -> tuple[float, bool] | None:
    """A smaller budget to plan for, and whether learning curves are not known beyond it."""
    known = FARTHEST * plan.pilot["price"]
    enough = math.inf if plan.curve.enough is None else max(plan.curve.enough, _least(plan))
    if plan.status == "pilot_too_small" or not min(enough, known) > 0:  # or one that cost nothing
        return None
    # To two digits, upwards: what is suggested must not fall below what is accepted.
    step = 10.0 ** (math.floor(math.log10(min(enough, known))) - 1)
    less = math.ceil(min(enough, known) / step - 1e-9) * step
    return (less, known < enough) if plan.budget >= WORTH_SAYING * less else None


def _spend_less_first(plan: Plan) -> Iterator[str]:
    less = _less(plan)
    if less and less[1]:
        yield (
            f"Spend about {number(less[0])} first rather than {number(plan.budget)}: learning curves are "
            f"known up to {FARTHEST:g} times the pilot's cost, and what more brings is a guess. Plan again "
            f"from what was bought, or collect a larger pilot."
        )


def _enough(plan: Plan) -> Iterator[str]:
    """Where the last part of the budget brings next to nothing: what is worth it."""
    less, curve = _less(plan), plan.curve
    if not less or less[1]:
        return
    levels = np.interp(np.log([less[0], plan.budget]), np.log(curve.budgets), curve.pass_at_1)
    yield (
        f"Of this budget about the first {number(less[0])} are worth it: the other "
        f"{number(plan.budget - less[0])} bring together {100 * (levels[1] - levels[0]):.1f} points of "
        f"pass@1, and each next 1,000 teacher tokens less than {100 * curve.least_gain:g}. This answer is "
        f"for {number(plan.budget)}; `--budget {less[0]:.10g}` plans the smaller one."
    )


def _least(plan: Plan) -> float:
    """The smallest budget that a plan from this pilot is made for."""
    return plan.pilot["price"] / PILOT_SHARE if plan.pilot["charged"] else 0.0


def _without_demonstrations(plan: Plan) -> Iterator[str]:
    """Why the table has no demonstrations."""
    name = Arm("pure-bc", r=0.0).name
    why = next((left["why"] for left in plan.left_out if left["recipe"] == name), None)
    if plan.demonstrations is None and why is not None:
        yield f"More demonstrations alone are not possible: {why}."


def _without_mixed(plan: Plan) -> Iterator[str]:
    """Why no candidate buys mixed contexts alone, where that was asked."""
    why = [left["why"] for left in plan.left_out if left["recipe"].endswith(" mixed contexts")]
    if why and all(c.context == "all" for c in plan.candidates):
        yield f"Contexts with mixed outcomes cannot be compared: {why[0]}."


def _where_the_best_is(plan: Plan) -> Iterator[str]:
    """P(best) summed over what a user decides, where it is spread over many candidates."""
    if plan.recommended.p_best >= STANDS_OUT:
        return
    headings = ("by recipe", ""), ("by r", "r="), ("by K where it is a choice", "K=")
    told = []
    for (heading, before), shares in zip(headings, plan.p_best_by().values(), strict=True):
        largest = [f"{before}{name} {share:.0%}" for name, share in shares.items() if share >= SMALL]
        told += [f"{heading}: {', '.join(largest)}"] if largest else []
    yield f"No single candidate stands out. P(best) summed {'; '.join(told)}."


def _buy(plan: Plan) -> str:
    best = plan.recommended
    what = _many(best.demos, "more demonstration")
    if best.recipe != "pure-bc":
        mixed = "with mixed outcomes " * (best.context == "mixed")
        what = f"{best.recipe} with K = {K_text(best.K)} and r = {best.r_tokens:g}: "
        what += f"{_many(best.contexts, 'context')} {mixed}from {_many(best.n, 'rollout')} of each of "
        what += _many(best.tasks, "task")
        what += f", and {_many(best.demos, 'demonstration')}" if best.demos else ""
    lead = {
        "ranked": "Buy",
        "no_preference": "No preference; the best guess is",
        "pilot_too_small": "The best guess from this pilot is",
    }[plan.status]
    return f"{lead} {what}. Train on them and on {TRACES[best.pilot_traces]}."


def _where(c: Candidate) -> str:
    """What a context filter adds to the meaning of a recipe."""
    if c.context == "all":
        return ""
    return (
        f"; it is asked only where the student's rollout and one of {REPLAYS} replays differ in success, "
        f"which costs rollouts of the student and no teacher token"
    )


def _brings(plan: Plan) -> str:
    best, bc = plan.recommended, plan.demonstrations
    level = (
        f"Expected pass@1 at a budget of {plan.budget:,.10g}: {best.pass_at_1:.3f} "
        f"(90 % interval {best.low:.3f} to {best.high:.3f})"
    )
    now = plan.pilot["J_student"]
    level += f", from {now:.3f} now (the student in the pilot)" if math.isfinite(now) else ""
    if bc is None or best.recipe == "pure-bc":
        return f"{level}."
    more = 100 * (best.pass_at_1 - bc.pass_at_1)
    said = f"{level}; {more:+.1f} points against more demonstrations alone ({bc.pass_at_1:.3f})"
    said += f", which it beats with probability {plan.p_beats_bc:.0%}."
    if plan.status == "no_preference":
        said += " That is below 90 %, so more demonstrations alone cannot be excluded."
    return said


def _as_good(plan: Plan) -> Iterator[str]:
    others = [c for c in plan.not_worse if c != plan.recommended]
    if not others:
        return
    kinds: dict[str, Candidate] = {}
    for c in others:
        kinds.setdefault(c.recipe, c)
    named = "; ".join(f"{_named(plan, c)} ({c.pass_at_1:.3f})" for c in list(kinds.values())[:4])
    yield (
        f"{len(others)} of {len(plan.candidates)} candidates cannot be excluded at 90 %, the best of each "
        f"recipe: {named}. Choosing the recommended one loses {100 * plan.recommended.regret:.1f} points in "
        f"expectation against the best."
    )
    likeliest = max(plan.candidates, key=lambda c: c.p_best)
    if likeliest.p_best > plan.recommended.p_best + 0.05:
        yield (
            f"{_named(plan, likeliest)} has the larger chance to be the best ({likeliest.p_best:.0%} against "
            f"{plan.recommended.p_best:.0%}), but a lower expectation: it is less certain."
        )


def _named(plan: Plan, c: Candidate) -> str:
    """A candidate's name, with the pilot's traces where it else is the recommended one's."""
    if c.arm.name != plan.recommended.arm.name:
        return c.arm.name
    return f"{c.arm.name} with {TRACES[c.pilot_traces]}"


def _beyond_trainings(plan: Plan) -> str:
    """How far the forecast is from what was trained."""
    largest = max(t["demo_tokens"] + t["continuation_tokens"] + t["sunk_tokens"] for t in plan.trainings)
    asked = plan.recommended.cost_inference + plan.pilot["tokens"] + plan.pilot["beside_tokens"]
    if asked < FAR_BEYOND * largest:
        return ""
    return (
        f" The largest training had {number(largest)} teacher tokens: pass@1 at {number(asked)} is "
        f"extrapolated {number(round(asked / largest, 1))} times beyond it."
    )


def _beside(plan: Plan) -> str:
    """The data that every student is trained on, and their name if nobody has given one."""
    tokens = plan.pilot["beside_tokens"]
    unnamed = (
        "" if plan.pilot.get("beside") else "; name their run in `plan --already`, for `train` and `spend`"
    )
    others = [training["sunk_tokens"] for training in plan.trainings if training["sunk_tokens"] != tokens]
    who = "The final student is" if others else "Every student, the last too, is"
    told = f" {who} trained on {number(tokens)} teacher tokens of other runs as well{unnamed}."
    if others:
        had = " or ".join(number(n) for n in sorted(set(others)))
        told += f" {len(others)} of the trainings had {had} of such tokens instead; curves allow for it."
    return told if tokens or others else ""


def _evidence(plan: Plan) -> str:
    made, unlike = len(plan.trainings), ""
    if plan.unlike >= 0.5:
        rest = "the trainings alone" if made else "little"
        unlike = f" This pilot is unlike all worlds that the prior was learnt from: levels rest on {rest}."
    if made:
        minutes = sum(t["seconds"] for t in plan.trainings) / 60
        return (
            f"Evidence: {made} small training{'s' if made > 1 else ''} on cuts of the pilot "
            f"({minutes:,.1f} minutes), and a prior over recipes.{unlike}"
            f"{_beside(plan)}{_beyond_trainings(plan)}"
        )
    return (
        "This is a guess: a prior over recipes, learnt in other worlds, and exact costs; no small training "
        "was read. An hour of small trainings on this pilot (--trainer or --train) would narrow the bands "
        "and show whether on-policy data beat demonstrations, but hardly which filter is best."
        f"{unlike}"
    )


def _change(plan: Plan) -> str:
    """Budgets at which another arm is expected to be best."""
    other = []
    for name, points in groupby(zip(plan.curve.recipes, plan.curve.budgets, strict=True), itemgetter(0)):
        budgets = [budget for _, budget in points]
        if name != plan.recommended.arm.name:
            to = f" to {number(budgets[-1])}" if budgets[-1] > budgets[0] else ""
            other.append(f"{name} at {number(budgets[0])}{to}")
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
    if _less(plan):
        return said  # Said above.
    least, lowest = f"{100 * curve.least_gain:g} points", curve.budgets[0]
    if curve.enough is None:
        return f"{said} The next 1,000 teacher tokens bring more than {least} over all of this range."
    where, also = f"Beyond about {number(curve.enough)}", ""
    if curve.enough <= lowest:
        where, enough = "Over all of this range", max(lowest, _least(plan))
        also = f": about {number(enough)} would do as well" if enough < plan.budget else ""
    return f"{said} {where} the next 1,000 teacher tokens bring less than {least}{also}."


def _pool(plan: Plan) -> Iterator[str]:
    if "pool_from" in plan.pilot:
        yield f"Tasks to spread the budget over: {count(plan.pilot['pool'])} ({plan.pilot['pool_from']})."


def _warnings(plan: Plan) -> Iterator[str]:
    """What is doubtful, without what the answer begins with."""
    begins = ["The budget is"] if any(_spend_less_first(plan)) else []
    if plan.status == "pilot_too_small":
        tasks = plan.pilot["tasks"]
        begins.append(f"The pilot has {tasks} tasks" if tasks < LEAST_TASKS else "The pilot's own cost")
    warnings = [warning for warning in plan.warnings if not warning.startswith(tuple(begins))]
    yield from (f"Warning: {warning}" for warning in warnings[:WARNINGS])
    if (more := len(warnings) - WARNINGS) > 0:
        yield f"{more} further warning{'s' if more > 1 else ''} in --json."


def number(value: float) -> str:
    """A number for a person."""
    return f"{value:,.0f}" if 100 <= value < LONGEST else f"{value:.3g}"


def count(value: int) -> str:
    """A count for a person."""
    return f"{value:,}" if value < LONGEST else f"{value:.3g}"


def _many(n: int, what: str) -> str:
    """A count of things in words."""
    return f"{count(n)} {what}{'s' * (n != 1)}"
