"""Figures of results: pass@1 against costs, budgets, K and r, and predictions against measurements."""

from __future__ import annotations

from math import isinf, log10
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from occupancy.record.drawing import INK, looks, panels, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@styled
def cost_figure(frame: pd.DataFrame) -> Figure:
    """pass@1 of arms against both costs, with both standard errors.

    Args:
        frame: A row a student: arm, C_i and C_tr (teacher output tokens bought, and trained on), pass_at_1,
            cluster_se (clustered by task), evaluation_se (over evaluations of the same tasks).
    """
    figure, axes = panels(2, sharey=True)
    titles = {"C_i": "teacher tokens bought, C_i", "C_tr": "teacher tokens trained on, C_tr"}
    for axis, (cost, title) in zip(axes, titles.items(), strict=True):
        for look, (arm, rows) in zip(looks(), frame.groupby("arm", sort=False), strict=False):
            line = rows.sort_values(cost)
            x, y, bar = line[cost], line["pass_at_1"], {"fmt": "none", "ecolor": look["color"]}
            axis.errorbar(x, y, line["cluster_se"], lw=1, capsize=3, **bar)
            axis.errorbar(x, y, line["evaluation_se"], lw=3.5, alpha=0.45, **bar)
            axis.plot(x, y, lw=1.2, ms=5, label=str(arm), **look)
        axis.set(xscale="log", xlabel=title)
        tokens(axis)
    axes[0].set(ylabel="pass@1", title="What teacher tokens brought")
    axes[1].set_title("thin bar: ± 1 SE clustered by task; thick: ± 1 SE over runs", fontsize=8)
    axes[1].legend(loc="best")
    return figure


@styled
def rates_figure(frame: pd.DataFrame) -> Figure:
    """pass@k of arms with their 95 % intervals.

    Args:
        frame: arm, k, rate, low, high (empty with one task), as `Comparison.rates_to_pandas` gives them.
    """
    arms = list(dict.fromkeys(frame["arm"]))[::-1]
    names = ["\n".join(wrap(arm, 36)) for arm in arms]  # long ones would leave no room for the axis
    height = 1.2 + sum(max(0.4, 0.2 * (1 + name.count("\n"))) for name in names)
    figure, (axis,) = panels(width=6, height=height)
    for look, (k, rows) in zip(looks(), frame.groupby("k"), strict=False):
        places = [arms.index(arm) for arm in rows["arm"]]
        low, high = rows["low"].fillna(rows["rate"]), rows["high"].fillna(rows["rate"])
        error = ((rows["rate"] - low).clip(0), (high - rows["rate"]).clip(0))
        axis.errorbar(rows["rate"], places, xerr=error, ls="", capsize=3, label=f"pass@{k}", **look)
    axis.set_yticks(range(len(arms)), names)
    measures = [f"pass@{k}" for k in sorted(set(frame["k"]))]
    axis.set(xlabel=f"{', '.join(measures)}, 95 % interval by task", title="Evaluations")
    axis.set(xlim=(0, 1), ylim=(-0.6, len(arms) - 0.4))
    if len(measures) > 1:
        axis.legend(loc="best")
    return figure


@styled
def learning_figure(curves: pd.DataFrame, trainings: pd.DataFrame | None = None) -> Figure:
    """Learning curves of arms, with their bands and the trainings that they were conditioned on.

    Args:
        curves: arm, tokens (of the teacher, trained on), pass_at_1, low, high (90 % band).
        trainings: arm, tokens, pass_at_1, se of each small training.
    """
    figure, (axis,) = panels(width=6)
    for look, (arm, rows) in zip(looks(), curves.groupby("arm", sort=False), strict=False):
        line = rows.sort_values("tokens")
        axis.fill_between(line["tokens"], line["low"], line["high"], color=look["color"], alpha=0.15, lw=0)
        axis.plot(line["tokens"], line["pass_at_1"], color=look["color"], label=str(arm))
        if trainings is not None:
            made = trainings[trainings["arm"] == arm]
            x, y = made["tokens"], made["pass_at_1"]
            axis.errorbar(x, y, made["se"], ls="", ms=4, capsize=2, lw=0.8, **look)
    axis.set_title("Learning curves, 90 % bands; points: trainings ± 1 SE")
    axis.set(xscale="log", xlabel="teacher tokens trained on", ylabel="pass@1")
    tokens(axis)
    axis.legend(loc="best")
    return figure


@styled
def best_K_figure(frame: pd.DataFrame) -> Figure:
    """pass@1 against K at every budget; the best K of each is filled.

    Args:
        frame: budget (teacher tokens), K (a number, inf allowed), pass_at_1, se (or low and high).
    """
    order = sorted(frame["K"].unique(), key=float)
    figure, (axis,) = panels(width=5.2)
    for look, (budget, rows) in zip(looks(), frame.groupby("budget"), strict=False):
        line = rows.assign(place=rows["K"].map(order.index)).sort_values("place")
        _with_best(axis, line, "place", look, f"{budget:,.0f}")
    axis.set_xticks(range(len(order)), map(K_label, order))
    axis.set_title("Best K by budget (large marker)")
    axis.set(xlabel="K, teacher turns at each context", ylabel="pass@1")
    axis.legend(loc="best", title="budget, teacher tokens")
    return figure


@styled
def mixing_figure(frame: pd.DataFrame) -> Figure:
    """pass@1 against r, the on-policy fraction of the tokens trained on; the best of each arm is large.

    Args:
        frame: arm, r, pass_at_1, se (or low and high).
    """
    figure, (axis,) = panels(width=5.2)
    for look, (arm, rows) in zip(looks(), frame.groupby("arm", sort=False), strict=False):
        _with_best(axis, rows.sort_values("r"), "r", look, str(arm))
    axis.set(xlabel="r, on-policy fraction of the tokens trained on", ylabel="pass@1", title="Mixing ratio")
    axis.legend(loc="best")
    return figure


@styled
def prediction_figure(frame: pd.DataFrame) -> Figure:
    """Predicted against measured pass@1, with the prediction's band and the measurement's error.

    Args:
        frame: arm (or the budget, where arms are many: a look and a line of the legend each), predicted, low,
            high (90 % band), measured, se.
    """
    figure, (axis,) = panels(width=5.2, height=4.6)
    for look, (arm, rows) in zip(looks(), frame.groupby("arm", sort=False), strict=False):
        below = (rows["predicted"] - rows["low"]).clip(0)
        above = (rows["high"] - rows["predicted"]).clip(0)
        x, y = rows["measured"], rows["predicted"]
        axis.errorbar(x, y, (below, above), rows["se"], ls="", ms=5, lw=1, label=str(arm), **look)
    ends = [frame[["low", "measured"]].min().min(), frame[["high", "measured"]].max().max()]
    axis.plot(ends, ends, color=INK, lw=0.8, ls="--")
    inside = frame["measured"].between(frame["low"], frame["high"]).sum()
    axis.set_title(f"Predicted and measured: {inside} of {len(frame)} inside their band")
    axis.set(xlabel="measured pass@1, ± 1 SE", ylabel="predicted pass@1, 90 % band")
    axis.legend(loc="best")
    return figure


@styled
def calibration_figure(frame: pd.DataFrame, *, bins: int = 8) -> Figure:
    """Predictions in worlds with a known truth: by bins of the prediction, and how many bands hold the truth.

    Args:
        frame: family, multiple (budget in pilot costs), predicted, low, high (90 % band), J (true pass@1).
        bins: Bins of equal counts, of each family's predictions.
    """
    import pandas as pd

    multiples = sorted(frame["multiple"].unique())
    figure, axes = panels(len(multiples) + 1, width=3.9, height=3.8)
    families = list(frame["family"].unique())
    for axis, multiple in zip(axes, multiples, strict=False):
        here = frame[frame["multiple"] == multiple]
        for look, (family, rows) in zip(looks(), here.groupby("family", sort=False), strict=False):
            cut = pd.qcut(rows["predicted"], min(bins, len(rows)), labels=False, duplicates="drop")
            middle = rows.groupby(cut)[["predicted", "J"]].mean()
            spread = rows.groupby(cut)["J"].quantile([0.05, 0.95]).unstack()
            axis.vlines(middle["predicted"], spread[0.05], spread[0.95], color=look["color"], lw=1, alpha=0.4)
            axis.plot(middle["predicted"], middle["J"], lw=0, ms=5, label=str(family), **look)
        low, high = here[["predicted", "J"]].min().min(), here[["predicted", "J"]].max().max()
        axis.plot([low, high], [low, high], color=INK, lw=0.8, ls="--")
        axis.set_title(f"Budget: {multiple:g} times the pilot's cost")
        axis.set_xlabel("predicted pass@1, mean of a bin")
    axes[0].set_ylabel("true pass@1: mean and 90 % of candidates")
    axes[0].legend(loc="best")
    inside = frame.assign(inside=frame["J"].between(frame["low"], frame["high"]))
    for look, (multiple, rows) in zip(looks(), inside.groupby("multiple"), strict=False):
        held = rows.groupby("family", sort=False)["inside"].mean().reindex(families)
        label = f"{float(str(multiple)):g} times the pilot's cost"
        axes[-1].plot(held.to_numpy(), range(len(families)), lw=0, ms=6, label=label, **look)
    axes[-1].axvline(0.9, color=INK, lw=0.8, ls="--")
    axes[-1].set_yticks(range(len(families)), families)
    axes[-1].set(xlim=(0, 1.02), xlabel="fraction of bands that hold the truth", title="Nominal: 90 %")
    axes[-1].legend(loc="lower left")
    return figure


def tokens(axis: Any) -> None:
    """Ticks of a logarithmic axis of tokens, as many as have room beside each other: 50k, 1.2M."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_xlim()
    decades = log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0, 3.0) if decades < 3.5 else (1.0,)
    axis.xaxis.set_major_locator(LogLocator(subs=subs))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", which="minor", length=0)


def short(value: float) -> str:
    """A number of tokens in few characters: 950, 50k, 1.2M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def K_label(K: float) -> str:
    """K on an axis."""
    return "∞" if isinf(K) else f"{K:g}"


def _with_best(axis: Any, line: pd.DataFrame, along: str, look: dict[str, Any], label: str) -> None:
    """A line with its errors or its band; its highest point is large."""
    x, y = line[along], line["pass_at_1"]
    if "se" in line:
        axis.errorbar(x, y, line["se"], fmt="none", ecolor=look["color"], lw=1, capsize=2)
    else:
        axis.fill_between(x, line["low"], line["high"], color=look["color"], alpha=0.1, lw=0)
    axis.plot(x, y, lw=1.2, ms=4, label=label, **look)
    best = y.to_numpy().argmax()
    axis.plot(x.iloc[best], y.iloc[best], ms=10, **look)
