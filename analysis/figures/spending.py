"""Figures of what was spent: tokens by use, and the losses of trainings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    spent = frame[frame["tokens"] > 0]
    output, prompt = ([use for use in uses if (spent["use"] == use).any()] for uses in (OUTPUT, PROMPT))
    shown = [("Output", output), ("Prompt", prompt)] if prompt else [("Output", output)]
    width = 5.2 if prompt else 7.5
    figure, axes = panels(len(shown), height=1.9 + 0.45 * len(runs), width=width, sharey=True)
    for axis, (kind, uses) in zip(axes, shown, strict=True):
        table = spent.pivot_table(index="run", columns="use", values="tokens", aggfunc="sum")
        table = table.reindex(index=runs, columns=uses).fillna(0)
        left = np.zeros(len(runs))
        for colour, hatch, use in zip(COLOURS, HATCHES, uses, strict=False):
            fill: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "lw": 0.5}
            axis.barh(runs, table[use], left=left, height=0.6, label=use, **fill)
            left += table[use].to_numpy()
        axis.xaxis.set_major_formatter(lambda value, _: short(value))
        missing = "" if prompt else " (prompt tokens: none reported)"
        axis.set(xlabel=f"{kind.lower()} tokens of the teacher", title=f"{kind} tokens{missing}")
        axis.grid(axis="y", visible=False)
        axis.set_ylim(-0.6, len(runs) - 0.4)
        if uses:
            below = -0.45 / (0.6 + 0.45 * len(runs))  # as many inches, however high the panel is
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, below), ncols=3)
    figure.draw_without_rendering()  # the first layout moves the legend, the next one has room for it
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
    axis.locator_params(axis="x", integer=True)
    axis.set_title("Losses of trainings (marked: held-out tasks)")
    axis.set(xlabel="optimizer step", ylabel="nats a target")
    axis.legend(loc="best")
    return figure
