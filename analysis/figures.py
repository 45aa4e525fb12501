"""The figure of a plan: what K teacher turns are worth, what they cost, and the gain for each token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from occupancy.record.recipe import INF, K_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from analysis.plan.report import Candidate, Plan

MEASURES = {"inference": "teacher tokens", "training": "accepted tokens", "money": "money"}
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
    measured = _one_of_each_depth(plan)
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.7), layout="constrained")
        _worth(axes[0], measured)
        _cost(axes[1], plan, measured)
        _value(axes[2], plan, measured)
        figure.savefig(
            file, dpi=160, metadata={"Software": None} if file.suffix == ".png" else {"Date": None}
        )
        plt.close(figure)
    return file


def _one_of_each_depth(plan: Plan) -> list[Candidate]:
    """The best share of each depth, where a plan compares shares too."""
    found: dict[float, Candidate] = {}
    for c in plan.candidates:
        if c.gain is not None and c.value is not None and c.value > getattr(found.get(c.K), "value", -np.inf):
            found[c.K] = c
    return list(found.values())


def _worth(axes: Axes, measured: list[Candidate]) -> None:
    at = np.arange(len(measured))
    gain, error = _column(measured, "gain"), _column(measured, "gain_se")
    axes.axhline(0, color=REST, linewidth=1)
    axes.errorbar(at, gain, yerr=error, fmt="o", color=INK, capsize=3)
    axes.set(title="K teacher turns are worth", ylabel="success gained, G(K) ± 1 SE")
    _depths(axes, measured)


def _cost(axes: Axes, plan: Plan, measured: list[Candidate]) -> None:
    m = np.array(plan.costs[plan.axis], float)
    axes.plot(np.arange(1, len(m) + 1), m, color=INK, linewidth=1.5)
    for c in measured:
        K = min(c.K, len(m))
        axes.plot(K, m[int(K) - 1], "o", color=INK, markersize=4)
    label = f"{MEASURES[plan.axis]} a context, m(K)"
    axes.set(title="… and cost", xlabel="K, teacher turns at most", ylabel=label)
    axes.set_xscale("log")
    ticks = [k for k in (1, 2, 3, 5, 10, 20, 50) if k <= len(m)]
    axes.set_xticks(ticks, [str(k) for k in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)


def _value(axes: Axes, plan: Plan, measured: list[Candidate]) -> None:
    kept = () if plan.fall_back else plan.not_worse
    best = None if plan.fall_back else plan.recommended
    if plan.level and best is not None and best not in measured:
        measured = [*measured, best]
    names = ("pass_at_1", "low", "high") if plan.level else ("value", "value_low", "value_high")
    value, low, high = (_column(measured, name) for name in names)
    colours = [BEST if best == c else KEPT if c in kept else REST for c in measured]
    for at, colour in enumerate(colours):
        axes.bar(at, value[at], color=colour, width=0.7)
        axes.plot([at, at], [low[at], high[at]], color=INK, linewidth=1.2)
    axes.axhline(0, color=INK, linewidth=0.8)
    if plan.level:
        axes.set(title="… so the budget buys", ylabel="pass@1 at the best r, 90 % band")
        axes.set_ylim(0, 1.35)  # the legend stands above
        axes.set_yticks(np.linspace(0, 1, 6))
    else:
        axes.set(title="… so a token buys", ylabel=f"G(K) {plan.unit.rpartition(', ')[2]}, 90 % band")
    chosen = "recommended" if plan.status == "ranked" else "until more is known"
    meanings = {BEST: chosen, KEPT: "not distinguishable", REST: "worse"}
    used = [colour for colour in meanings if colour in colours]
    axes.legend([Patch(color=c) for c in used], [meanings[c] for c in used], frameon=False, fontsize=8)
    _depths(axes, measured)


def _depths(axes: Axes, measured: list[Candidate]) -> None:
    labels = [_label(c) for c in measured]
    axes.set_xticks(range(len(measured)), labels)
    axes.set_xlabel("K, teacher turns at most")


def _label(c: Candidate) -> str:
    K = "∞" if c.K == INF else str(K_text(c.K))
    return K if c.gain is not None else f"{c.recipe}\n{K}"


def _column(measured: list[Candidate], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([getattr(c, name) for c in measured], np.float64)
