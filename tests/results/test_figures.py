"""Every figure is drawn from a small tidy frame, in every format, in colours that stay apart."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pilots
import pytest

from analysis.demo import PILOT
from analysis.figures import pilot, results, spending
from analysis.figures.plan import plan_figure_of
from analysis.plan.costs import Prices
from analysis.plan.planner import plan
from occupancy.record.drawing import COLOURS, FORMATS, panels, save
from occupancy.record.errors import InputError

ARMS = ("pure-bc", "op-short K=3")
RESULTS = pd.DataFrame(
    {
        "arm": np.repeat(ARMS, 3),
        "C_i": [5e4, 1e5, 2e5] * 2,
        "C_tr": [4e4, 8e4, 16e4] * 2,
        "pass_at_1": [0.3, 0.35, 0.4, 0.35, 0.42, 0.5],
        "cluster_se": 0.03,
        "evaluation_se": 0.01,
        "low": 0.2,
        "high": 0.6,
        "r": [0, 0.5, 1] * 2,
        "predicted": [0.3, 0.3, 0.3, 0.4, 0.4, 0.4],
        "measured": [0.35, 0.4, 0.7, 0.3, 0.5, 0.4],
        "se": 0.03,
    }
).assign(tokens=lambda f: f["C_tr"])
K = pd.DataFrame(
    [
        {"budget": b, "K": k, "pass_at_1": 0.4 - 0.01 * abs(min(k, 9) - 3), "se": 0.01}
        for b in (1e5, 4e5)
        for k in (1, 3, np.inf)
    ]
)
WORLDS = pd.DataFrame(
    [
        {"family": f, "multiple": m, "predicted": p, "low": p - 0.1, "high": p + 0.1, "J": p + 0.05}
        for f in "ab"
        for m in (5, 20)
        for p in np.linspace(0.2, 0.8, 20)
    ]
)
DEPTH = pd.DataFrame({"K": [0, 1, 3, np.inf], "value": [0.4, 0.5, 0.6, 0.9], "se": 0.05})
SWITCH = pd.DataFrame(
    {"first": [1, 5], "last": [4, 20], "value": [0.95, 0.8], "se": 0.04, "contexts": [30, 12]}
)
STATES = pd.DataFrame(
    [
        {"state": s, "convention": c, "probability": 0.2, "se": 0.01, "turn": t, "alive": 1 / t}
        for s in "xyz"
        for t, c in ((1, "pooled"), (2, "trajectory"))
    ]
)
COVERED = pd.DataFrame({"source": "demonstrations", "size": [10, 100], "covered": [0.2, 0.6], "se": 0.05})
SPENT = pd.DataFrame(
    {"run": "a", "use": ["trained on", "rejected", "prefix, read again"], "tokens": [10, 5, 100]}
)
LOSSES = pd.DataFrame(
    {"training": "s0", "step": [1, 2, 3], "loss": [1.0, 0.8, 0.7], "held_out": [np.nan, np.nan, 0.9]}
)
DRAWN: dict[str, Callable[[], Any]] = {
    "cost": lambda: results.cost_figure(RESULTS),
    "learning": lambda: results.learning_figure(RESULTS, RESULTS),
    "best_K": lambda: results.best_K_figure(K),
    "mixing": lambda: results.mixing_figure(RESULTS),
    "prediction": lambda: results.prediction_figure(RESULTS),
    "calibration": lambda: results.calibration_figure(WORLDS),
    "handback": lambda: pilot.handback_figure(DEPTH, SWITCH),
    "conventions": lambda: pilot.conventions_figure(STATES),
    "by_turn": lambda: pilot.by_turn_figure(STATES),
    "coverage": lambda: pilot.coverage_figure(COVERED),
    "spending": lambda: spending.spending_figure(SPENT),
    "loss": lambda: spending.loss_figure(LOSSES),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_says_what_its_axes_are_and_is_the_same_twice(name: str, tmp_path: Path) -> None:
    figure = DRAWN[name]()
    assert any(axis.get_title(loc="left") for axis in figure.axes)
    assert all(axis.get_xlabel() for axis in figure.axes)
    for suffix in FORMATS:
        one, other = (save(DRAWN[name](), tmp_path / f"{at}{suffix}") for at in ("one", "other"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("runs", [1, 2, 6])
def test_the_legend_below_the_bars_is_inside_the_picture(runs: int) -> None:
    """Of one run it was cut off: the first layout did not know where the legend would be."""
    figure = spending.spending_figure(pd.concat([SPENT.assign(run=f"run {at}") for at in range(runs)]))
    figure.savefig(BytesIO())
    for axis in figure.axes:
        assert axis.get_legend().get_window_extent().y0 >= 0


@pytest.mark.parametrize("high", [4e3, 5e4, 4e5, 8e6, 1e9])
def test_the_numbers_of_tokens_on_an_axis_do_not_overlap(high: float) -> None:
    figure, (axis, _, _) = panels(3, width=3.45, height=3.6, width_ratios=(1.15, 0.75, 1.25))
    axis.set(xscale="log", xlim=(300, high))
    results.tokens(axis)
    figure.savefig(BytesIO())
    boxes = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
    inside = [box for box in boxes if axis.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axis.bbox.x1 + 1]
    assert len(inside) >= 3
    assert all(one.x1 < other.x0 for one, other in pairwise(inside))


def test_predictions_inside_their_band_are_counted() -> None:
    (axis,) = results.prediction_figure(RESULTS).axes
    assert "5 of 6" in axis.get_title(loc="left")


def test_both_standard_errors_are_named() -> None:
    left, right = results.cost_figure(RESULTS).axes
    assert "clustered by task" in right.get_title(loc="left")
    assert "over runs" in right.get_title(loc="left")
    assert (left.get_xlabel(), right.get_xlabel()) == (
        "teacher tokens bought, C_i",
        "teacher tokens trained on, C_tr",
    )


def test_the_first_colours_stay_apart_for_colour_blind_readers() -> None:
    """Distances in CIELAB after Machado et al. (2009), severity 1; 15 is clear to the eye."""
    blind = {
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    }
    for matrix in (np.eye(3), *map(np.array, blind.values())):
        seen = [_lab(np.clip(matrix @ _linear(colour), 0, 1)) for colour in COLOURS[:6]]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 15


def test_a_format_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.pdf, \.png, \.svg"):
        save(DRAWN["loss"](), tmp_path / "loss.jpg")
    with pytest.raises(InputError, match="make it first"):
        save(DRAWN["loss"](), tmp_path / "none" / "loss.png")


def _linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear / [0.9505, 1.0, 1.089]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_the_legend_of_a_plan_names_only_what_is_drawn(tmp_path: Path) -> None:
    folder = pilots.write_pilot(tmp_path / "A", pilots.A, tasks=30, demos=0).folder
    without = plan_figure_of(plan(folder, budget=5e5, pool=2000)).axes[0].get_legend()
    assert "more demonstrations" not in [text.get_text() for text in without.get_texts()]


def test_trainings_are_drawn_on_the_axis_that_counts_their_tokens() -> None:
    given: dict[str, Any] = {"already": [PILOT], "pool": 3553, "prices": Prices(15.0)}
    for axis, budget, drawn in (("inference", 5e4, True), ("money", 2.0, False)):
        axes = plan_figure_of(plan(PILOT, budget=budget, axis=axis, **given)).axes[0]
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        assert ("small trainings ± 1 SE" in named) is drawn
        assert axes.get_xlim()[1] < 20 * budget


def test_long_names_of_arms_leave_room_for_the_axis() -> None:
    settings = "max_tokens=80-eager=1-cache_gib=1-at_once=8-window=2048"
    names = [f"ev/vllm-pi1-epoch-00{n}-{settings}" for n in (1, 2)]
    rows = [{"arm": name, "k": 1, "rate": 0.5, "low": 0.4, "high": 0.6} for name in names]
    figure = results.rates_figure(pd.DataFrame(rows))
    figure.draw_without_rendering()
    (axis,) = figure.axes
    assert axis.get_window_extent().width > 0.4 * figure.bbox.width
    told = [label.get_text().replace("\n", "") for label in axis.get_yticklabels()]
    assert told == names[::-1]
