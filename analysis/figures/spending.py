"""Figures of what was spent: tokens by use, and the losses of trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.figures.results import short
from occupancy.record.drawing import COLOURS, looks, panels, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

OUTPUT = ("trained on", "a pilot's demonstrations", "rejected", "failed or lost", "not in a text")
PROMPT = ("prefix, from a cache", "prefix, read again")
HATCHES = ("", "//", "xx", "..", "\\\\")


@styled
def spending_figure(frame: pd.DataFrame) -> Figure:
    """What the teacher's tokens were spent on: output, and prompts, which re-read the prefix.

    Args:
        frame: run, use (one of OUTPUT or PROMPT), tokens.
    """
    runs = list(dict.fromkeys(frame["run"]))[::-1]
    figure, axes = panels(2, height=1.6 + 0.45 * len(runs), width=5.2)
    for axis, uses, title in ((axes[0], OUTPUT, "Output tokens"), (axes[1], PROMPT, "Prompt tokens")):
        table = frame.pivot_table(index="run", columns="use", values="tokens", aggfunc="sum").reindex(runs)
        left = np.zeros(len(runs))
        for colour, hatch, use in zip(COLOURS, HATCHES, uses, strict=False):
            width = table[use].fillna(0).to_numpy() if use in table else np.zeros(len(runs))
            axis.barh(
                runs,
                width,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                lw=0.5,
                label=use,
                height=0.6,
            )
            left += width
        axis.xaxis.set_major_formatter(lambda value, _: short(value))
        axis.set(xlabel=f"{title.lower()} of the teacher", title=title)
        axis.grid(axis="y", visible=False)
        if not left.any():
            axis.set(title=f"{title}: the provider reported none", xticks=[], xlabel="(no counts)")
    axes[1].set_yticklabels([])
    handles = [axis.get_legend_handles_labels() for axis in axes]
    drawn = [*handles[0][0], *handles[1][0]], [*handles[0][1], *handles[1][1]]
    figure.legend(*drawn, loc="outside lower center", ncols=4)
    return figure


@styled
def loss_figure(frame: pd.DataFrame) -> Figure:
    """Loss curves of trainings: each optimizer step, and held-out loss where it was measured.

    Args:
        frame: training, step, loss (nats a target), and held_out (the same on held-out tasks; may be empty).
    """
    figure, (axis,) = panels(width=6)
    for look, (training, rows) in zip(looks(), frame.groupby("training", sort=False), strict=False):
        line = rows.sort_values("step")
        axis.plot(line["step"], line["loss"], color=look["color"], lw=0.8, alpha=0.7, label=str(training))
        held = line.dropna(subset=["held_out"]) if "held_out" in line else line[:0]
        axis.plot(held["step"], held["held_out"], lw=1.2, ms=5, ls="--", **look)
    axis.set(
        xlabel="optimizer step", ylabel="nats a target", title="Losses of trainings (marked: held-out tasks)"
    )
    axis.legend()
    return figure
