"""The figures of a study, from its folder: predicted against measured, and what tokens brought.

tar xJf benchmarks/studies/alfworld/study.tar.xz -C DIR
python -m benchmarks studies.figures --study DIR/alfworld --out docs/figures
python -m benchmarks studies.figures --study hotpotqa --out docs/figures --name study_hotpotqa
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.curves.arms import Arm
from analysis.figures.results import tokens
from analysis.study.config import PURE_BC
from analysis.study.measured import Sweep, label, read_sweep
from occupancy.record.drawing import COLOURS, INK, looks, panels, save, styled

MOST = 5
"""Arms with a colour of their own."""


def frames(folder: Path) -> pd.DataFrame:
    """A row an arm and budget: pass@1 and lead on more demonstrations, predicted and measured."""
    registered = json.loads((folder / "registration.json").read_text("utf-8"))
    sweep, _ = read_sweep(folder, registered)
    told = {(Arm.from_dict(cell), cell["budget"]): cell for cell in registered["cells"]}
    rows = []
    for budget in sorted({cell.budget for cell in sweep.cells}):
        leads = sweep.leads(budget, PURE_BC)
        for arm, names in sweep.groups(budget).items():
            rows.append(_row(sweep, arm, names) | {"budget": budget} | dict(told[arm, budget]))
            if arm in leads:
                rows[-1] |= {"lead": leads[arm].difference, "lead_se": leads[arm].se}
    return pd.DataFrame(rows)


def _row(sweep: Sweep, arm: Arm, names: list[str]) -> dict[str, object]:
    rate = sweep.rate(names)
    bought = [sweep.told(name)["C_i"] for name in names]
    return {
        "arm": label(arm),
        "measured": rate.difference,
        "se": rate.se,
        "seeds": len(names),
        "bought": sum(bought) / len(bought),
    }


@styled
def predicted(frame: pd.DataFrame) -> Figure:
    """pass@1 of each recipe, and its lead on more demonstrations: predicted bands and what was measured."""
    budget = frame["budget"].max()
    rows = frame[frame["budget"] == budget].sort_values("measured").reset_index(drop=True)
    figure, axes = panels(2, width=5.0, height=4.6, sharey=True)
    for axis, (low, mean, high, seen, se) in zip(
        axes,
        (
            ("low", "pass_at_1", "high", "measured", "se"),
            ("over_bc_low", "over_bc", "over_bc_high", "lead", "lead_se"),
        ),
        strict=True,
    ):
        here = rows.dropna(subset=[seen])
        axis.hlines(here.index, here[low], here[high], color=COLOURS[5], alpha=0.5, lw=7, label="90 % band")
        axis.plot(here[mean], here.index, "|", color=COLOURS[0], ms=9, mew=2, label="predicted")
        axis.errorbar(
            here[seen],
            here.index,
            xerr=here[se],
            fmt="o",
            ms=5,
            color=COLOURS[1],
            capsize=2,
            label="measured ± 1 SE",
        )
    names = [f"{row.arm} ({row.seeds} seed{'s' if row.seeds > 1 else ''})" for row in rows.itertuples()]
    axes[0].set_yticks(rows.index, names)
    inside = ((rows["low"] <= rows["measured"]) & (rows["measured"] <= rows["high"])).sum()
    own = rows.dropna(subset=["lead"])
    held = ((own["over_bc_low"] <= own["lead"]) & (own["lead"] <= own["over_bc_high"])).sum()
    axes[0].set(
        xlabel="pass@1", title=f"Levels at {budget:,} teacher tokens:\n{inside} of {len(rows)} bands hold"
    )
    axes[1].set(
        xlabel="pass@1 minus that of more demonstrations", title=f"Leads:\n{held} of {len(own)} bands hold"
    )
    axes[1].axvline(0, color=INK, lw=0.8, ls="--")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@styled
def costs(frame: pd.DataFrame, references: dict[str, float]) -> Figure:
    """pass@1 against the teacher tokens bought; recipes that are not `decisive` in grey."""
    figure, (axis,) = panels(1, width=6.6, height=4.4)
    named = decisive(frame)
    others = frame[~frame["arm"].isin(named)]
    grey: dict[str, Any] = {"fmt": "o-", "ms": 3, "lw": 0.8, "color": "#b4bec8"}
    for arm, rows in others.groupby("arm"):
        axis.errorbar(rows["bought"], rows["measured"], rows["se"], **grey, label="_" + str(arm))
    axis.errorbar([], [], [], **grey, label=f"{others['arm'].nunique()} others")
    for place, (look, arm) in enumerate(zip(looks(), named, strict=False)):
        rows = frame[frame["arm"] == arm].sort_values("bought")
        shifted = rows["bought"] * (1 + 0.012 * (place - 2))
        axis.errorbar(
            shifted, rows["measured"], rows["se"], fmt="-", lw=1.4, ms=5.5, capsize=3, label=arm, **look
        )
    axis.axhline(references["pilot"], color=INK, lw=0.9, ls="--", label="the pilot's successes alone")
    axis.set(
        xscale="log",
        xlabel="teacher tokens bought beside the pilot, C_i",
        ylabel="pass@1, ± 1 SE",
        title="What teacher tokens brought",
    )
    tokens(axis)
    axis.legend(loc="upper left")
    return figure


def decisive(frame: pd.DataFrame) -> list[str]:
    """More demonstrations; then the arms with most seeds at the largest budget, the best first."""
    most = frame[frame["budget"] == frame["budget"].max()]
    order = most.sort_values(["seeds", "measured"], ascending=False)["arm"]
    return [label(PURE_BC), *order[order != label(PURE_BC)][: MOST - 1]]


def main(study: Path, out: Path, name: str = "study") -> None:
    """Draw them into a folder; costs only where several arms were measured at several budgets."""
    frame = frames(study)
    print(save(predicted(frame), out / f"{name}_predicted.png"))
    if (frame.groupby("budget").size() > 2).sum() > 1:
        references = json.loads((study / "verdict.json").read_text("utf-8"))["references"]
        print(save(costs(frame, references), out / f"{name}_costs.png"))
