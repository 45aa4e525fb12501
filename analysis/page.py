"""A plan as one self-contained HTML page with the figure inside; plan.html, beside it, is the template."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from analysis.figures import MEASURES
from analysis.plan.purchase import commands
from analysis.plan.report import Candidate, Plan, sentences
from occupancy.record.pages import render, write
from occupancy.record.recipe import K_text
from occupancy.runs import open_run

PREDICTION = ("recipe", "K", "r", "demos", "contexts", "n", "pass@1 (90 % band)", "P(best)")
GAIN = ("K", "contexts", "n", "gain G(K) ± 1 SE", "cost m(K)", "value (90 % band)", "P(best)")


def plan_page(plans: Sequence[Plan], *, pilot: Path, figure: Path, file: Path) -> Path:
    """Write plans of one pilot, smallest budget first, into `file`; returns its path."""
    run = open_run(pilot)
    page = render(
        Path(__file__).with_name("plan.html"),
        pilot=plans[0].pilot,
        info=run.info,
        recipe_hash=run.recipe.hash,
        image=b64encode(figure.read_bytes()).decode(),
        parts=[_part(plan) for plan in plans],
    )
    return write(file, page)


def _part(plan: Plan) -> dict[str, Any]:
    """What the template shows of one plan."""
    verdict, *notes = sentences(plan)
    return {
        "plan": plan,
        "verdict": verdict.replace("* ", "").replace("~ ", ""),
        "measure": MEASURES[plan.axis],
        "heads": PREDICTION if plan.level else GAIN,
        "rows": [(_mark(c, plan), _prediction(c) if plan.level else _gain(c, plan)) for c in plan.candidates],
        "commands": commands(plan),
        "notes": notes,
    }


def _mark(c: Candidate, plan: Plan) -> str:
    if plan.fall_back:
        return ""
    return "best" if c == plan.recommended else "kept" if c in plan.not_worse else ""


def _prediction(c: Candidate) -> Iterable[object]:
    return (
        c.recipe,
        K_text(c.K),
        f"{c.r_tokens:g}",
        f"{c.demos:,}",
        f"{c.contexts:,}",
        c.n,
        f"{c.pass_at_1:.3f} ({c.low:.3f} to {c.high:.3f})",
        f"{c.p_best:.0%}",
    )


def _gain(c: Candidate, plan: Plan) -> Iterable[object]:
    m = plan.costs[plan.axis]
    return (
        K_text(c.K),
        f"{c.contexts:,}",
        c.n,
        f"{c.gain:+.3f} ± {c.gain_se:.3f}",
        f"{m[int(min(c.K, len(m))) - 1]:,.3g}",
        f"{c.value:.2f} ({c.value_low:.2f} to {c.value_high:.2f})",
        f"{c.p_best:.0%}",
    )
