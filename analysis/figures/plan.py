"""The figure of a plan: what budgets are worth, what a context costs, and the answer, recipe by recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.figures.results import short, tokens
from analysis.plan.answer import number, shown
from occupancy.record.drawing import COLOURS, INK, panels, save, styled
from occupancy.record.recipe import K_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.plan.report import Candidate, Plan

MEASURES = {
    "inference": "teacher tokens (C_i)",
    "training": "teacher tokens trained on (C_tr)",
    "money": "money",
}
"""What each axis counts."""
BEST, KEPT = COLOURS[0], COLOURS[5]
CLASSES = {"recommended": BEST, "not excluded at 90 %": KEPT, "excluded": "#8795a1"}


def plan_figure(plan: Plan, file: str | Path) -> Path:
    """Draw a plan into `file` (PDF, PNG or SVG); returns its path."""
    return save(plan_figure_of(plan), file)


@styled
def plan_figure_of(plan: Plan) -> Figure:
    """What budgets are worth, what a context costs, and the best of each recipe at the budget."""
    figure, axes = panels(3, width=3.45, height=3.6, width_ratios=(1.15, 0.75, 1.25))
    _curve(axes[0], plan)
    _cost(axes[1], plan)
    _answer(axes[2], plan)
    return figure


def _curve(axes: Axes, plan: Plan) -> None:
    curve = plan.curve
    budgets = np.array(curve.budgets)
    axes.fill_between(budgets, curve.low, curve.high, color=KEPT, alpha=0.25, linewidth=0)
    axes.plot(budgets, curve.pass_at_1, color=BEST, label="best recipe, 90 % band")
    if np.isfinite(curve.more_demonstrations).any():
        axes.plot(budgets, curve.more_demonstrations, color=INK, linestyle="--", label="more demonstrations")
    if plan.trainings and plan.axis == "inference":  # they are counted in C_i, whatever the budget is
        x = [t["demo_tokens"] + t["continuation_tokens"] for t in plan.trainings]
        y, se = ([t[name] for t in plan.trainings] for name in ("pass_at_1", "se"))
        axes.errorbar(x, y, yerr=se, fmt="o", markersize=3, color=INK, label="small trainings ± 1 SE")
    axes.axvline(plan.budget, color=INK, linewidth=1, linestyle=":", label=f"budget {short(plan.budget)}")
    axes.set(title="What budgets are worth", xlabel=f"budget, {MEASURES[plan.axis]}", ylabel="pass@1")
    axes.set_xscale("log")
    tokens(axes)
    axes.set_ylim(0, 1)
    axes.legend(loc="best", frameon=True, framealpha=1, edgecolor="none")


def _cost(axes: Axes, plan: Plan) -> None:
    m = np.array(plan.costs[plan.axis], float)
    axes.plot(np.arange(1, len(m) + 1), m, color=INK, linewidth=1.5)
    axes.set(title="Cost of a context, m(K)", xlabel="K, teacher turns", ylabel=MEASURES[plan.axis])
    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 5, 10, 20, 50) if k <= len(m)]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)


def _answer(axes: Axes, plan: Plan) -> None:
    rows = list(reversed(shown(plan)))
    recommended, kept, excluded = CLASSES
    named = set[str]()
    for at, c in enumerate(rows):
        chosen = c == plan.recommended
        what = recommended if chosen else kept if c in plan.not_worse else excluded
        label, width = "" if what in named else what, 7 if chosen else 4
        axes.hlines(at, c.low, c.high, color=CLASSES[what], linewidth=width, label=label)
        axes.plot(c.pass_at_1, at, "D" if chosen else "o", color=INK, markersize=6 if chosen else 4)
        named.add(what)
    axes.set_yticks(range(len(rows)), [_label(c) for c in rows])
    axes.get_yticklabels()[rows.index(plan.recommended)].set_fontweight("bold")
    lead = "buy" if plan.status == "ranked" else "no preference; best guess"
    title = f"At {number(plan.budget)} {MEASURES[plan.axis]}:\n{lead} {_label(plan.recommended)}"
    axes.set_title(title, x=-0.5)  # above the recipes' names
    axes.set_xlabel("pass@1, 90 % band\nr: on-policy fraction of the tokens trained on", fontsize=8.5, x=0.3)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(-0.6, len(rows) + 0.4)
    axes.legend(loc="upper left", ncols=3, handlelength=1.2, columnspacing=1.0)


def _label(c: Candidate) -> str:
    return "pure-bc" if c.recipe == "pure-bc" else f"{c.bought}, K={K_text(c.K)}, r={c.r_tokens:g}"
