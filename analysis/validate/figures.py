"""Figures of a validation: regret by family and rule, and predicted against true pass@1 with bands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulate.pipelines.figures import COLOURS, DPI

if TYPE_CHECKING:
    import pandas as pd

NOT_DRAWN = ("planner, pilot not charged", "op-short K=2 r=0.5", "op-short K=5 r=0.5")
"""Rules that the tables have, and that would crowd the bars."""


def save_figures(found: dict[str, Any], options: pd.DataFrame, folder: Path) -> list[Path]:
    """Write planner_regret.png, and planner_bands.png where plans have bands; returns their paths."""
    drawn = {"planner_regret.png": regret_figure(found)}
    banded = options[(options["role"] == "candidate") & options["low"].notna()]
    if len(banded):
        drawn["planner_bands.png"] = band_figure(banded)
    for name, figure in drawn.items():
        figure.savefig(folder / name, dpi=DPI)
    return [folder / name for name in drawn]


def regret_figure(found: dict[str, Any]) -> Any:
    """Mean regret of planner and fixed rules, by family, with one standard error over worlds."""
    figure, axes = _panels(len(found["budgets"]), width=5.2)
    for axis, (multiple, part) in zip(axes, found["budgets"].items(), strict=True):
        shown = {rule: cells for rule, cells in part["regret"].items() if rule not in NOT_DRAWN}
        for row, (rule, families) in enumerate(shown.items()):
            places = [i + 0.8 * row / len(shown) for i in range(len(families))]
            means = [cell["mean"] for cell in families.values()]
            errors = [cell["se"] or 0.0 for cell in families.values()]
            width = 0.7 / len(shown)
            colour = COLOURS[row % len(COLOURS)]
            axis.bar(places, means, width, yerr=errors, color=colour, label=rule, error_kw={"lw": 0.7})
        axis.set_xticks([i + 0.35 for i in range(len(families))], list(families))
        axis.set_title(f"budget: {multiple} times the pilot's cost", fontsize=9)
    axes[0].set_ylabel("regret, pass@1 (pilot charged)")
    axes[-1].legend(fontsize=6, frameon=False)
    return figure


def band_figure(banded: pd.DataFrame) -> Any:
    """Predicted against true pass@1 of every candidate, with its 90 % band; the lowest 4 % run out."""
    multiples = sorted(banded["multiple"].unique())
    figure, axes = _panels(len(multiples), width=3.8)
    for axis, multiple in zip(axes, multiples, strict=True):
        here = banded[banded["multiple"] == multiple]
        for colour, (name, part) in zip(COLOURS, here.groupby("family", sort=False), strict=False):
            axis.vlines(part["J"], part["low"], part["high"], color=colour, lw=0.4, alpha=0.25)
            axis.plot(part["J"], part["predicted"], ".", color=colour, ms=3, label=name)
        axis.axline((1, 1), slope=1, color="#111111", lw=0.7)
        axis.set(xlim=(here["J"].min() - 0.005, 1), ylim=(here["low"].quantile(0.04), 1.005))
        axis.set_title(f"budget: {multiple} times the pilot's cost", fontsize=9)
        axis.set_xlabel("true pass@1")
    axes[0].set_ylabel("predicted pass@1, 90 % band")
    axes[0].legend(fontsize=6, frameon=False)
    return figure


def _panels(count: int, *, width: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count, 3.4), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.grid(alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7)
    return figure, axes
