"""Figures of a validation: regret by family and rule, and predicted against true pass@1 with bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from analysis.figures.results import calibration_figure
from occupancy.record.drawing import COLOURS, panels, save, styled

NOT_DRAWN = ("planner, pilot not charged", "op-short K=2 r=0.5", "op-short K=5 r=0.5")
"""Rules that the tables have, and that would crowd the bars."""


def save_figures(found: dict[str, Any], options: pd.DataFrame, folder: Path) -> list[Path]:
    """Write planner_regret.png, and planner_bands.png where plans have bands; returns their paths."""
    drawn = {"planner_regret.png": regret_figure(found)}
    banded = options[(options["role"] == "candidate") & options["low"].notna()]
    if len(banded):
        drawn["planner_bands.png"] = calibration_figure(banded)
    return [save(figure, folder / name) for name, figure in drawn.items()]


@styled
def regret_figure(found: dict[str, Any]) -> Any:
    """Mean regret of planner and fixed rules, by family, with one standard error over worlds."""
    figure, axes = panels(len(found["budgets"]), width=5.6)
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
        axis.set_title(f"budget: {multiple} times the pilot's cost")
    axes[0].set_ylabel("regret, pass@1 (pilot charged)")
    axes[-1].legend(loc="best")
    return figure
