"""A plan as one self-contained HTML page with the figure inside; plan.html, beside it, is the template."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.figures.plan import MEASURES, plan_figure_of
from analysis.plan.answer import number, sentences, shown
from analysis.plan.report import Candidate, Plan
from occupancy.record.drawing import DPI, styled
from occupancy.record.pages import new_page, render, write
from occupancy.record.recipe import K_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = (
    *("recipe", "K", "r", "pilot traces", "contexts", "demonstrations"),
    *("pass@1 (90 % band)", "loss", "P(best)"),
)


def plan_page(plan: Plan, file: str | Path) -> Path:
    """Write a plan into `file`; returns its path."""
    file = new_page(file, option="--page")
    figure, candidates = plan_figure_of(plan), shown(plan)
    page = render(
        Path(__file__).with_name("plan.html"),
        pilot=plan.pilot,
        budget=number(plan.budget),
        measure=MEASURES[plan.axis],
        lines=sentences(plan),
        image=png(figure),
        width=pixels(figure),
        heads=HEADS,
        rows=[candidate_row(c) for c in candidates],
        marks=marks(candidates, plan),
        trainings=[
            (
                t["name"],
                f"{t['demo_tokens'] + t['continuation_tokens']:,}",
                t["seed"],
                f"{t['pass_at_1']:.3f} ± {t['se']:.3f}",
                f"{t['seconds']:.1f}",
            )
            for t in plan.trainings
        ],
    )
    return write(file, page)


@styled
def png(figure: Figure) -> str:
    """A figure as PNG in base64, for a page."""
    made = BytesIO()
    figure.savefig(made, format="png", dpi=DPI, metadata={"Software": None})
    return b64encode(made.getvalue()).decode()


def pixels(figure: Figure) -> int:
    """How wide a page shows a figure, so that its letters are as large as the page's small print."""
    return round(96 * float(figure.get_figwidth()))


def marks(candidates: Sequence[Candidate], plan: Plan) -> list[str]:
    """Each candidate's class on a page: the recommended one, those that cannot be excluded, the others."""
    return ["best" if c == plan.recommended else "kept" if c in plan.not_worse else "" for c in candidates]


def candidate_row(c: Candidate) -> tuple[object, ...]:
    """A candidate as cells under HEADS."""
    return (
        c.bought,
        K_text(c.K),
        f"{c.r_tokens:g}",
        c.pilot_traces,
        f"{c.contexts:,}",
        f"{c.demos:,}",
        f"{c.pass_at_1:.3f} ({c.low:.3f} to {c.high:.3f})",
        f"{100 * c.regret:.1f}",
        f"{c.p_best:.0%}",
    )
