"""What a larger pilot is worth: expected value of sample information, from draws of pass@1.

A pilot of n0 tasks leaves draws of pass@1 of every option. Buying the option with the best mean is worth
max_o E J_o; knowing the truth first would be worth E max_o J_o; the difference is the value of perfect
information. After n more tasks the posterior mean is itself random before they are played: around today's
mean, with the draws' covariance times n / (n0 + n). So the draws are drawn towards their mean by the root
of that share, and the maximum is taken of those (preposterior analysis: Raiffa and Schlaifer 1961; the
Gaussian approximation on draws: Jalal and Alarid-Escudero 2018; reviewed in Heath et al. 2020). It is exact
where J is Gaussian, and never below 0 nor above perfect information, whatever J is.

Axes: D draws, O options, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.plan.pilot import Floats
from occupancy.record.errors import InputError

SIZES = 24
"""Numbers of further tasks that are tried, from a tenth of the pilot to 16 times it."""
LEAST_DRAWS = 10


@dataclass(frozen=True)
class Size:
    """One larger pilot."""

    tasks: int
    """Tasks beyond those of the pilot."""
    price: float
    """Of those, in the axis' unit."""
    value: float
    """Pass@1 gained by choosing after they are known, before their price (EVSI)."""
    net: float
    """The same less the pass@1 that their price would have bought."""


@dataclass(frozen=True)
class Value:
    """What a larger pilot is worth, in pass@1 (or the unit of the draws)."""

    evpi: float
    """Gained by knowing the truth: no pilot is worth more."""
    per_1000_tokens: float
    """The largest EVSI per 1,000 units of price."""
    price_per_1000_tokens: float
    """Pass@1 that the same tokens buy as training data."""
    best_extra_tasks: int
    """Further tasks with the largest net value; 0 where none is above 0."""
    curve: tuple[Size, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "evpi": self.evpi,
            "per_1000_tokens": self.per_1000_tokens,
            "price_per_1000_tokens": self.price_per_1000_tokens,
            "best_extra_tasks": self.best_extra_tasks,
            "curve": [vars(size) for size in self.curve],
        }


def evsi(
    J: Floats,
    *,
    tasks: int,
    task_price: float,
    gain_per_token: float = 0.0,
    unresolved: Floats | None = None,
    most: int | None = None,
) -> Value:
    """Value of further tasks.

    J: [D, O] draws of pass@1 from a pilot of `tasks` tasks. task_price: of one more task, the part that
    would not have been bought anyway. gain_per_token: pass@1 for one more unit of budget, dJ/dB.
    unresolved: [D, P] what the draws also vary and more tasks cannot tell, such as the log of the learning
    curve's kappa; the part of J that is quadratic in it is left out. most: further tasks at most.
    """
    J = np.asarray(J, np.float64)
    _check(J, tasks=tasks, task_price=task_price, gain_per_token=gain_per_token)
    mean = J.mean(0)
    apart = J - mean if unresolved is None else _resolved(J - mean, np.asarray(unresolved, np.float64))
    curve = tuple(
        Size(n, n * task_price, value, value - gain_per_token * n * task_price)
        for n in _sizes(tasks, most)
        for value in [_gain(mean, apart, n / (tasks + n))]
    )
    best = max(curve, key=lambda size: size.net, default=None)
    return Value(
        evpi=_gain(mean, apart, 1.0),
        per_1000_tokens=max((1000 * size.value / size.price for size in curve), default=0.0),
        price_per_1000_tokens=1000 * gain_per_token,
        best_extra_tasks=best.tasks if best is not None and best.net > 0 else 0,
        curve=curve,
    )


def _gain(mean: Floats, apart: Floats, share: float) -> float:
    """E max - max E of draws mean + sqrt(share) * apart; convex in the root, so it rises with the share."""
    return max(float((mean + np.sqrt(share) * apart).max(1).mean() - mean.max()), 0.0)


def _resolved(apart: Floats, unresolved: Floats) -> Floats:
    """Residuals of the deviations [D, O] after a regression on parameters [D, P], squares included."""
    design = np.column_stack([np.ones(len(apart)), unresolved, unresolved**2])
    return np.asarray(apart - design @ np.linalg.lstsq(design, apart, rcond=None)[0])


def _sizes(tasks: int, most: int | None) -> list[int]:
    largest = 16 * tasks if most is None else min(most, 16 * tasks)
    if largest < 1:
        return []
    grid = np.geomspace(max(tasks / 10, 1), max(largest, 1), SIZES)
    return sorted({min(round(n), largest) for n in grid})


def _check(J: Floats, *, tasks: int, task_price: float, gain_per_token: float) -> None:
    if J.ndim != 2 or len(J) < LEAST_DRAWS or not J.shape[1] or not np.isfinite(J).all():
        raise InputError(
            f"draws of shape {J.shape}, {int((~np.isfinite(J)).sum())} not finite: expected [D, O] finite "
            f"numbers with at least {LEAST_DRAWS} draws of one option or more"
        )
    if tasks < 1 or not task_price > 0 or not 0 <= gain_per_token < np.inf:
        raise InputError(
            f"tasks={tasks}, task_price={task_price}, gain_per_token={gain_per_token}: expected at least "
            f"1 task, a price above 0 and a gain of at least 0"
        )
