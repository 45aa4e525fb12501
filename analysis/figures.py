"""The figure of a plan: what budgets are worth, the best recipes at this one, and the cost of a context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from analysis.plan.answer import shown
from occupancy.record.recipe import K_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analysis.plan.report import Candidate, Plan

MEASURES = {"inference": "teacher tokens", "training": "accepted teacher tokens", "money": "money"}
"""What each axis counts."""
INK, BEST, KEPT, REST = "#1f2933", "#0b6e4f", "#7fc8a9", "#c3ccd5"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "svg.hashsalt": "fewsteps",
}


def plan_figure(plan: Plan, file: str | Path) -> Path:
    """Draw a plan into `file` (PNG or SVG); returns its path."""
    file = Path(file)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, 3, figsize=(12.5, 4.0), layout="constrained", width_ratios=(1.3, 1.2, 0.8)
        )
        _curve(axes[0], plan)
        _candidates(axes[1], plan)
        _cost(axes[2], plan)
        figure.savefig(
            file, dpi=160, metadata={"Software": None} if file.suffix == ".png" else {"Date": None}
        )
        plt.close(figure)
    return file


def _curve(axes: Axes, plan: Plan) -> None:
    curve = plan.curve
    budgets = np.array(curve.budgets)
    axes.fill_between(budgets, curve.low, curve.high, color=KEPT, alpha=0.35, linewidth=0)
    axes.plot(budgets, curve.pass_at_1, color=BEST, label="best recipe, 90 % band")
    axes.plot(budgets, curve.more_demonstrations, color=INK, linestyle="--", label="more demonstrations")
    if plan.trainings:
        x = [t["demo_tokens"] + t["continuation_tokens"] for t in plan.trainings]
        y, se = ([t[name] for t in plan.trainings] for name in ("pass_at_1", "se"))
        axes.errorbar(x, y, yerr=se, fmt="o", markersize=3, color=INK, label="small trainings ± 1 SE")
    axes.axvline(plan.budget, color=REST, linewidth=1)
    axes.set(title="What budgets are worth", xlabel=f"budget, {MEASURES[plan.axis]}", ylabel="pass@1")
    axes.set_xscale("log")
    ticks = sorted({float(budgets[0]), float(plan.budget), float(budgets[-1])})
    axes.set_xticks(ticks, [f"{x:,.0f}" if x >= 100 else f"{x:.3g}" for x in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def _candidates(axes: Axes, plan: Plan) -> None:
    rows = list(reversed(shown(plan)))
    for at, c in enumerate(rows):
        colour = BEST if c == plan.recommended else KEPT if c in plan.not_worse else REST
        axes.plot([c.low, c.high], [at, at], color=colour, linewidth=4, solid_capstyle="butt")
        axes.plot(c.pass_at_1, at, "o", color=INK, markersize=4)
    axes.set_yticks(range(len(rows)), [_label(c) for c in rows])
    axes.set(title=f"Best of each recipe at {plan.budget:,.0f}", xlabel="pass@1, 90 % bands")


def _cost(axes: Axes, plan: Plan) -> None:
    m = np.array(plan.costs[plan.axis], float)
    axes.plot(np.arange(1, len(m) + 1), m, color=INK, linewidth=1.5)
    axes.set(title="Cost of a context", xlabel="K", ylabel=f"{MEASURES[plan.axis]}, m(K)")
    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 5, 10, 20, 50) if k <= len(m)]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)


def _label(c: Candidate) -> str:
    return "pure-bc" if c.recipe == "pure-bc" else f"{c.recipe} K={K_text(c.K)} r={c.r_tokens:g}"
