"""A plan as a record, as the JSON that `fewsteps plan --json` prints, and as a table for a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.plan.pilot import LEAST_TASKS
from occupancy.record.recipe import K_text

if TYPE_CHECKING:
    from rich.console import RenderableType

LONGEST = 10**15
"""Numbers from here on are written with an exponent."""
STATUSES = ("ranked", "no_preference", "pilot_too_small")
FALL_BACK = "K = 2 or 3 with r between .5 and .75"
"""What to do where a pilot says nothing: a middle course; in docs/planner.md K = inf often did better."""


@dataclass(frozen=True)
class Candidate:
    """One recipe that the budget could buy; None is what this level of the planner cannot know."""

    recipe: str
    recipe_hash: str
    K: float
    n: int
    """Proposals a task."""
    tasks: int
    r_tokens: float | None = None
    r_tasks: float | None = None
    pass_at_1: float | None = None
    low: float | None = None
    high: float | None = None
    cost_inference: float | None = None
    """Teacher output tokens that it buys (C_i)."""
    cost_training: float | None = None
    cost_money: float | None = None
    target_tokens: float | None = None
    sequence_tokens: float | None = None
    p_best: float | None = None
    regret: float | None = None
    """Expected loss against the best candidate, in the plan's `unit`."""
    contexts: int | None = None
    demos: int = 0
    gain: float | None = None
    """G(K): success gained at one context by K teacher turns."""
    gain_se: float | None = None
    gain_pooled: float | None = None
    value: float | None = None
    """What the ranking is by, in the plan's `unit`."""
    value_low: float | None = None
    value_high: float | None = None
    """90 % band of `value` over tasks."""


@dataclass(frozen=True)
class Plan:
    """What to buy, and how sure that is."""

    status: str
    budget: float
    axis: str
    recommended: Candidate
    not_worse: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]
    pilot: dict[str, Any]
    unit: str
    calibrated: bool = False
    fall_back: bool = False
    """`recommended` is the fall-back, not a finding."""
    gain_exists: bool = False
    """Hand-backs show that some depth gains something."""
    level: int = 0
    """0: costs and hand-backs only. 1: with a model of what the student learns."""
    warnings: tuple[str, ...] = ()
    costs: dict[str, Any] = field(default_factory=dict)
    """Cost of a context at every K = 1 .. T_max on each axis."""
    laws: tuple[dict[str, Any], ...] = ()
    """The pilot's contexts under the laws of other recipes: `reweigh.other_laws`."""
    what_if: tuple[dict[str, Any], ...] = ()
    """Answers of `analysis.plan.what_if`."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: K is a whole number or 'inf', unknown is null."""
        plain = asdict(self)
        for candidate in (plain["recommended"], *plain["not_worse"], *plain["candidates"]):
            candidate["K"] = K_text(candidate["K"])
        cleaned: dict[str, Any] = _finite(plain)
        return cleaned


def table(plan: Plan) -> RenderableType:
    """The plan for a person: one line a candidate, then plain sentences."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"Budget: {_number(plan.budget)} {_unit(plan.axis)}"
    rows = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    per = {"inference": "C_i", "training": "C_tr", "money": "money"}[plan.axis]
    known = (
        ("r", "demos", "pass@1", "90 % band") if plan.level else ("n", "G(K)", "± SE", f"{per} each", "value")
    )
    for name in ("", "recipe", "K", "contexts", *known, "P(best)"):
        rows.add_column(name, justify="left" if name in ("", "recipe") else "right", no_wrap=True)
    for c in plan.candidates:
        rows.add_row(
            _mark(plan, c),
            c.recipe,
            str(K_text(c.K)),
            "?" if c.contexts is None else _count(c.contexts),
            *(_prediction(c) if plan.level else _gain(plan, c)),
            "?" if c.p_best is None else f"{c.p_best:.0%}",
        )
    return Group(rows, *map(Text, sentences(plan)), "", _laws(plan))  # names are no markup


def _laws(plan: Plan) -> RenderableType:
    """The pilot's contexts under other laws: what one kept context costs and gains, continued to the end."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = "The pilot's contexts under other laws, K = inf"
    rows = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("law", "contexts", "ESS", "accepted", "C_i each", "C_tr each", "G(inf)", "± SE"):
        rows.add_column(name, justify="left" if name == "law" else "right", no_wrap=True)
    for row in plan.laws:
        if not row["identified"]:
            rows.add_row(row["law"], *(["-"] * 7))
            continue
        shown = (f"{row['ess']:.0f}", f"{row['accepted']:.0%}")
        each = (_number(row["cost_inference"]), _number(row["cost_training"]))
        rows.add_row(
            row["law"],
            str(row["contexts"]),
            *shown,
            *each,
            f"{row['gain'][-1]:+.3f}",
            f"{row['gain_se'][-1]:.3f}",
        )
    return rows


def _mark(plan: Plan, candidate: Candidate) -> str:
    if plan.status != "ranked":
        return ""
    if candidate == plan.recommended:
        return "*"
    return "~" if candidate in plan.not_worse else ""


def _prediction(c: Candidate) -> tuple[str, ...]:
    return f"{c.r_tokens:.2f}", _count(c.demos), f"{c.pass_at_1:.3f}", f"{c.low:.3f}-{c.high:.3f}"


def _gain(plan: Plan, c: Candidate) -> tuple[str, ...]:
    spent = {"inference": c.cost_inference, "training": c.cost_training, "money": c.cost_money}[plan.axis]
    return (
        _count(c.n),
        "?" if c.gain is None else f"{c.gain:+.3f}",
        "?" if c.gain_se is None else f"{c.gain_se:.3f}",
        _number(spent / c.contexts) if spent is not None and c.contexts else "?",
        "?" if c.value is None else f"{c.value:.3g}",
    )


def sentences(plan: Plan) -> Sequence[str]:
    """The plan in words."""
    best = plan.recommended
    share = "" if best.r_tokens is None else f", r = {best.r_tokens:g} of the tokens"
    advice = (
        f"Fall back on {FALL_BACK}."
        if plan.fall_back
        else f"Until more is known take {best.recipe} with K = {K_text(best.K)}{share}."
    )
    said = {
        "ranked": f"* Recommended: {best.recipe} with K = {K_text(best.K)}{share}, n = {_count(best.n)} "
        f"proposals for each of {_count(best.tasks)} tasks. ~ Not distinguishable from the best at 90 %: "
        f"{_named(plan)}.",
        "no_preference": f"No preference: the pilot cannot tell them apart. {advice}",
        "pilot_too_small": f"The pilot is too {_fault(plan)}. Fall back on {FALL_BACK}.",
    }[plan.status]
    lines = [said, f"value: {plan.unit}."]
    if not plan.calibrated:
        lines.append("Not calibrated by training runs: a ranking only.")
    if more := plan.pilot.get("evsi"):
        lines.append(str(more["said"]))
    lines += [f"? {answer['said']}" for answer in plan.what_if]
    return [*lines, *(f"! {warning}" for warning in plan.warnings)]


def _fault(plan: Plan) -> str:
    few = plan.pilot["tasks"] < LEAST_TASKS
    return f"small to plan from: {plan.pilot['tasks']} tasks" if few else "dear for this budget"


def _named(plan: Plan) -> str:
    if plan.level:
        return f"{len(plan.not_worse)} of {len(plan.candidates)} candidates"
    return "K = " + ", ".join(str(K_text(c.K)) for c in plan.not_worse)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _number(value: float) -> str:
    return f"{value:,.0f}" if 100 <= value < LONGEST else f"{value:.3g}"


def _count(value: int) -> str:
    return f"{value:,}" if value < LONGEST else f"{value:.3g}"


def _unit(axis: str) -> str:
    return {
        "inference": "(teacher tokens)",
        "training": "(teacher tokens in accepted traces)",
        "money": "(money)",
    }[axis]
