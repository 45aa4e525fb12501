"""A plan as one self-contained HTML page with the figure inside; plan.html, beside it, is the template."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.figures.plan import MEASURES, plan_figure
from analysis.plan.answer import number, sentences, shown
from analysis.plan.report import Candidate, Plan
from occupancy.record.errors import InputError
from occupancy.record.pages import render, write
from occupancy.record.recipe import K_text

HEADS = (
    "recipe",
    "K",
    "r",
    "pilot traces",
    "contexts",
    "demonstrations",
    "pass@1 (90 % band)",
    "loss",
    "P(best)",
)


def plan_page(plan: Plan, file: str | Path) -> Path:
    """Write a plan into `file`; returns its path."""
    file = Path(file)
    if not file.parent.is_dir():
        raise InputError(f"{file} cannot be written: expected {file.parent} to be a folder; make it first")
    with TemporaryDirectory() as folder:
        image = plan_figure(plan, Path(folder) / "plan.png").read_bytes()
    verdict, *lines = sentences(plan)
    page = render(
        Path(__file__).with_name("plan.html"),
        pilot=plan.pilot,
        budget=number(plan.budget),
        measure=MEASURES[plan.axis],
        verdict=verdict,
        lines=lines,
        image=b64encode(image).decode(),
        heads=HEADS,
        rows=[(_mark(c, plan), candidate_row(c)) for c in shown(plan)],
        trainings=plan.trainings,
    )
    return write(file, page)


def _mark(c: Candidate, plan: Plan) -> str:
    return "best" if c == plan.recommended else "kept" if c in plan.not_worse else ""


def candidate_row(c: Candidate) -> tuple[object, ...]:
    """A candidate as cells under HEADS."""
    return (
        c.recipe,
        K_text(c.K),
        f"{c.r_tokens:g}",
        c.pilot_traces,
        f"{c.contexts:,}",
        f"{c.demos:,}",
        f"{c.pass_at_1:.3f} ({c.low:.3f} to {c.high:.3f})",
        f"{100 * c.regret:.1f}",
        f"{c.p_best:.0%}",
    )
