"""Figures of a sweep: pass@1 against both cost axes, the best K by budget, and r."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.record.drawing import looks, panels, save, styled
from simulate.pipelines.summary import by_K, means

if TYPE_CHECKING:
    import pandas as pd


def save_figures(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the figures that the sweep has data for; returns their paths."""
    drawn = {"pass_at_1.png": cost_curves(frame)}
    own = frame[frame["recipe"] == "op-short"]
    if (own["r"] > 0).any():
        drawn["best_K.png"] = K_curves({"": frame})
    if len(own):
        drawn["r.png"] = r_curves({"": frame})
    return [save(figure, folder / name) for name, figure in drawn.items()]


@styled
def cost_curves(frame: pd.DataFrame) -> Any:
    """pass@1 of each recipe at its best r, against tokens bought and against tokens trained on."""
    table = means(frame)
    table = table.loc[table.groupby(["budget", "recipe", "K"], sort=False)["J"].idxmax()]
    figure, axes = panels(2, sharey=True)
    for axis, cost, title in zip(
        axes, ("C_i", "C_tr"), ("teacher tokens bought, C_i", "teacher tokens trained on, C_tr"), strict=True
    ):
        for look, ((recipe, K), line) in zip(
            looks(), table.groupby(["recipe", "K"], sort=False), strict=False
        ):
            label = f"{recipe} K={K}" if recipe == "op-short" else recipe
            _line(axis, line.sort_values(cost), cost, look, str(label))
        axis.set(xscale="log" if table[cost].any() else "linear", xlabel=title)
        ticks = table.groupby("budget")[cost].max()
        axis.set_xticks(ticks, [f"{tick / 1000:.0f}k" for tick in ticks])
        axis.minorticks_off()
    axes[0].set_ylabel("pass@1")
    axes[1].legend(loc="best")
    return figure


@styled
def K_curves(frames: Mapping[str, pd.DataFrame]) -> Any:
    """pass@1 of op-short against K, at the best r for each K, one line a budget; a panel a frame."""
    figure, axes = panels(len(frames), width=3.6 if len(frames) > 1 else 4.6)
    for axis, (title, frame) in zip(axes, frames.items(), strict=True):
        table = by_K(frame)
        order = sorted(table["K"].unique(), key=float)
        table = table.assign(place=table["K"].map(order.index)).sort_values("place")
        for look, (budget, line) in zip(looks(), table.groupby("budget"), strict=False):
            _line(axis, line, "place", look, f"{budget:,}", star=True)
        axis.set_xticks(range(len(order)), order)
        axis.set(title=title, xlabel="K, teacher turns (star: best)")
    axes[0].set_ylabel("pass@1 at the best r > 0")
    axes[0].legend(loc="best", title="budget, tokens")
    return figure


@styled
def r_curves(frames: Mapping[str, pd.DataFrame]) -> Any:
    """pass@1 of op-short against r, at the best K for each budget, one line a budget; a panel a frame."""
    figure, axes = panels(len(frames))
    for axis, (title, frame) in zip(axes, frames.items(), strict=True):
        table = means(frame[frame["recipe"] == "op-short"])
        for look, (budget, part) in zip(looks(), table.groupby("budget"), strict=False):
            K = part["K"].iloc[int(part["J"].to_numpy().argmax())]
            _line(axis, part[part["K"] == K].sort_values("r"), "r", look, f"{budget:,}, K={K}", star=True)
        axis.set(title=title, xlabel="r, fraction of the budget spent on-policy (star: best)")
        axis.legend(loc="best", title="budget, tokens")
    axes[0].set_ylabel("pass@1")
    return figure


def _line(
    axis: Any, table: pd.DataFrame, x: str, look: dict[str, Any], label: str, *, star: bool = False
) -> None:
    axis.errorbar(table[x], table["J"], table["se"], ms=4, lw=1.2, capsize=2, label=label, **look)
    if star:
        top = table["J"].to_numpy().argmax()
        axis.plot(table[x].iloc[top], table["J"].iloc[top], "*", color=look["color"], ms=11)
