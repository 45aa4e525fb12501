"""Figures of a sweep: pass@1 against both cost axes, the best K by budget, and r."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulate.pipelines.summary import by_K, means

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#0b6e99", "#d1495b", "#3a7d44", "#8f5fa8", "#c77d0a", "#5c677d", "#111111", "#9c6644")
WIDTH, HEIGHT, DPI = 4.2, 3.2, 110


def save_figures(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write the figures that the sweep has data for; returns their paths."""
    drawn = {"pass_at_1.png": cost_curves(frame)}
    own = frame[frame["recipe"] == "op-short"]
    if (own["r"] > 0).any():
        drawn["best_K.png"] = K_curves(frame)
    if len(own):
        drawn["r.png"] = r_curves(frame)
    paths = []
    for name, figure in drawn.items():
        figure.savefig(folder / name, dpi=DPI)
        paths.append(folder / name)
    return paths


def cost_curves(frame: pd.DataFrame) -> Any:
    """pass@1 of each recipe at its best r, against tokens bought and against tokens trained on."""
    table = means(frame)
    table = table.loc[table.groupby(["budget", "recipe", "K"], sort=False)["J"].idxmax()]
    figure, axes = _panels(2)
    for axis, cost, title in zip(
        axes, ("C_i", "C_tr"), ("teacher tokens bought, C_i", "teacher tokens trained on, C_tr"), strict=True
    ):
        for colour, ((recipe, K), line) in zip(
            _cycle(), table.groupby(["recipe", "K"], sort=False), strict=False
        ):
            label = f"{recipe} K={K}" if recipe == "op-short" else recipe
            _line(axis, line.sort_values(cost), cost, colour, str(label))
        axis.set(xscale="log", xlabel=title)
        ticks = table.groupby("budget")[cost].max()
        axis.set_xticks(ticks, [f"{tick / 1000:.0f}k" for tick in ticks])
        axis.minorticks_off()
    axes[0].set_ylabel("pass@1")
    axes[1].legend(fontsize=6, frameon=False)
    return figure


def K_curves(frame: pd.DataFrame) -> Any:
    """pass@1 of op-short against K, at the best r for each K, one line a budget."""
    table = by_K(frame)
    order = sorted(table["K"].unique(), key=float)
    table = table.assign(place=table["K"].map(order.index)).sort_values("place")
    figure, (axis,) = _panels(1)
    for colour, (budget, line) in zip(_cycle(), table.groupby("budget"), strict=False):
        _line(axis, line, "place", colour, f"{budget:,}", star=True)
    axis.set_xticks(range(len(order)), order)
    axis.set(xlabel="K, teacher turns (star: best)", ylabel="pass@1 at the best r > 0")
    axis.legend(title="budget, tokens", title_fontsize=6, fontsize=6, frameon=False)
    return figure


def r_curves(frame: pd.DataFrame) -> Any:
    """pass@1 of op-short against r, at the best K for each budget, one line a budget."""
    table = means(frame[frame["recipe"] == "op-short"])
    figure, (axis,) = _panels(1)
    for colour, (budget, part) in zip(_cycle(), table.groupby("budget"), strict=False):
        K = part["K"].iloc[int(part["J"].to_numpy().argmax())]
        _line(axis, part[part["K"] == K].sort_values("r"), "r", colour, f"{budget:,}, K={K}", star=True)
    axis.set(xlabel="r, fraction of the budget spent on-policy (star: best)", ylabel="pass@1")
    axis.legend(title="budget, tokens", title_fontsize=6, fontsize=6, frameon=False)
    return figure


def _line(axis: Any, table: pd.DataFrame, x: str, colour: str, label: str, *, star: bool = False) -> None:
    axis.errorbar(
        table[x], table["J"], table["se"], color=colour, marker="o", ms=3, lw=1.2, capsize=2, label=label
    )
    if star:
        top = table["J"].to_numpy().argmax()
        axis.plot(table[x].iloc[top], table["J"].iloc[top], "*", color=colour, ms=11)


def _panels(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH * count, HEIGHT), layout="constrained")
    axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for axis in axes:
        axis.grid(alpha=0.25, lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(which="both", labelsize=7)
        axis.xaxis.label.set_size(8)
        axis.yaxis.label.set_size(8)
    return figure, axes


def _cycle() -> tuple[str, ...]:
    return COLOURS * 8
