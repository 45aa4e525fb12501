"""Figures of a pilot: hand-backs, success by depth, occupancies and their conventions, coverage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.figures.results import K_label, tokens
from occupancy.figures import conventions_figure
from occupancy.record.drawing import FAINT, INK, looks, panels, styled

__all__ = ["by_turn_figure", "conventions_figure", "coverage_figure", "handback_figure"]

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@styled
def handback_figure(depth: pd.DataFrame, switch: pd.DataFrame) -> Figure:
    """U_K, the success of the student after K teacher turns, and the teacher's success by switch time.

    Args:
        depth: K (inf: the teacher plays to the end), value (U_K), se.
        switch: first, last (switch times t' of a bin), value (success of whole continuations), se, contexts.
    """
    figure, (left, right) = panels(2, sharey=True)
    look = next(looks())
    order = depth.sort_values("K")
    places = np.arange(len(order))
    left.errorbar(places, order["value"], order["se"], ms=5, capsize=3, **look)
    left.set_xticks(places, map(K_label, order["K"]))
    left.set(ylabel="success, ± 1 SE by task", title="Hand-backs: U_K")
    left.set_xlabel("K teacher turns, then the student (∞: the teacher alone)")
    at = np.arange(len(switch))
    right.errorbar(at, switch["value"], switch["se"], ms=5, capsize=3, **look)
    bins = zip(switch["first"], switch["last"], switch["contexts"], strict=True)
    right.set_xticks(at, [f"{a}-{b}\nn={n}" if a < b else f"{a}\nn={n}" for a, b, n in bins])
    right.set(xlabel="switch time t' (n: contexts)", title="The teacher's success from the student's states")
    left.set_ylim(bottom=0)
    return figure


@styled
def by_turn_figure(frame: pd.DataFrame) -> Figure:
    """Occupancy by turn: the share of each state among the trajectories that reach the turn, and how many do.

    Args:
        frame: turn, state, probability, alive (fraction of trajectories with T >= t).
    """
    figure, (axis,) = panels(width=6.5)
    table = frame.pivot(index="turn", columns="state", values="probability").fillna(0.0)
    states = list(dict.fromkeys(frame["state"]))
    colours = [look["color"] for look, _ in zip(looks(), states, strict=False)]
    axis.stackplot(table.index, table[states].T.to_numpy(), labels=states, colors=colours, alpha=0.75, lw=0)
    alive = frame.drop_duplicates("turn").set_index("turn")["alive"]
    axis.plot(alive.index, alive, color=INK, lw=1.6, ls="--", label="still playing")
    axis.set(xlabel="turn t", ylabel="fraction", title="Occupancy by turn")
    axis.set(xlim=(1, max(2, table.index.max())), ylim=(0, 1))
    axis.locator_params(axis="x", integer=True)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize=8, frameon=False)
    return figure


@styled
def coverage_figure(frame: pd.DataFrame) -> Figure:
    """How much of the student's contexts a training set covers, by its size.

    Args:
        frame: source, size (contexts in the training set), covered (fraction of the student's occupancy), se.
    """
    figure, (axis,) = panels(width=5.2)
    for look, (source, rows) in zip(looks(), frame.groupby("source", sort=False), strict=False):
        line = rows.sort_values("size")
        x, y, label = line["size"], line["covered"], str(source)
        axis.errorbar(x, y, line["se"], ms=4, lw=1.2, capsize=2, label=label, **look)
    axis.axhline(1, color=FAINT, lw=0.8)
    axis.set(xscale="log", xlabel="contexts in the training set", title="Coverage, ± 1 SE by task")
    axis.set_ylabel("fraction of the student's contexts covered")
    tokens(axis)
    axis.set_ylim(0, 1.02)
    axis.legend(loc="best")
    return figure
