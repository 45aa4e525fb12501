"""The model of learning curves, jointly over arms and sizes: a Gaussian process on the logit of pass@1.

logit J(arm, x) = level(x) + advantage(arm) g(x) + deviations, x being log teacher tokens relative to the
pilot's. Arms that share a recipe, or have a K or an r near each other, share their deviations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.plan.arms import Arm, Facts, Training
from analysis.plan.pilot import Floats
from analysis.plan.posterior import Option, Posterior, worth

LEVEL_SD, SLOPE_SD = 0.4, 0.1
"""Of the common curve, at the pilot's own size and for each factor of e beyond it."""
RECIPE_SD, R_SD, K_SD, OWN_SD = 0.12, 0.2, 0.12, 0.06
"""Of the arms' differences for each factor of e."""
SEED_SD = 0.12
"""Of a training's own luck."""
ADVANTAGE = {"op-success": 0.12, "op-critical": 0.15, "oec": 0.08, "op-failed": 0.05, "op-short": 0.05}
SUCCESS_TRACES = 0.04


@dataclass(frozen=True)
class _Points:
    """N (arm, size) pairs as features."""

    mean: Floats
    rows: Floats
    """[N, F] features; the prior covariance is rows rows' plus a shared kernel of arms."""


def posterior(
    trainings: Sequence[Training], facts: Facts, arms: Sequence[Arm], budgets: Sequence[float]
) -> Posterior:
    """What is believed of each arm at each budget of teacher tokens bought beside the pilot."""
    wanted = [(arm, sum(facts.pilot_tokens(arm.pilot_traces)) + budget) for arm in arms for budget in budgets]
    mean, cov = _conditioned(trainings, facts, wanted)
    return Posterior(np.asarray(budgets, float), mean.reshape(len(arms), len(budgets)), cov)


def next_training(
    trainings: Sequence[Training], facts: Facts, arms: Sequence[Arm], options: Sequence[Option], budget: float
) -> Option | None:
    """The option whose measurement is expected to raise the best arm's pass@1 the most; None without one."""
    if not options:
        return None
    wanted = [(arm, sum(facts.pilot_tokens(arm.pilot_traces)) + budget) for arm in arms]
    offered = [(option.arm, option.budget) for option in options]
    mean, cov = _conditioned(trainings, facts, wanted + offered)
    A = len(wanted)
    own = np.diag(cov)[A:]
    noise = own + SEED_SD**2 + 0.1**2
    return options[int(worth(mean[:A], cov[:A, A:], noise).argmax())]


def _conditioned(
    trainings: Sequence[Training], facts: Facts, wanted: Sequence[tuple[Arm, float]]
) -> tuple[Floats, Floats]:
    seen = [(t.arm, float(t.tokens)) for t in trainings]
    points = seen + list(wanted)
    mean, cov = _mean(points, facts), _cov(points, facts)
    n = len(seen)
    if not n:
        return mean, cov
    J = np.array([(t.successes.sum() + 1) / (t.attempts.sum() + 2) for t in trainings])
    se = np.array([max(t.se, 0.005) for t in trainings])
    noise = (se / (J * (1 - J))) ** 2 + SEED_SD**2
    gain = np.linalg.solve(cov[:n, :n] + np.diag(noise), cov[:n, n:]).T
    return mean[n:] + gain @ (np.log(J / (1 - J)) - mean[:n]), cov[n:, n:] - gain @ cov[:n, n:]


def _mean(points: Sequence[tuple[Arm, float]], facts: Facts) -> Floats:
    teacher = facts.teacher if math.isfinite(facts.teacher) else max(facts.student, 0.8)
    low, high = np.clip([facts.student, teacher], 0.02, 0.98)
    x = _size(points, facts)
    way = 0.35 + 0.12 * x
    level = np.log(low / (1 - low)) * (1 - way) + np.log(high / (1 - high)) * way
    more = np.array([ADVANTAGE.get(arm.recipe, 0.0) * (1 + arm.r) / 2 for arm, _ in points])
    kept = np.array([SUCCESS_TRACES * (arm.pilot_traces == "success") for arm, _ in points])
    return np.asarray(level + more * _grown(x) + kept)


def _cov(points: Sequence[tuple[Arm, float]], facts: Facts) -> Floats:
    x = _size(points, facts)
    names = [arm.recipe for arm, _ in points]
    r = np.array([arm.r for arm, _ in points])
    K = np.log([min(arm.K, facts.T_max) for arm, _ in points])
    same = np.array([[a == b for b in names] for a in names], float)
    filtered = np.array([float(name in ("op-success", "op-critical", "oec")) for name in names])
    own = same * np.exp(-((r[:, None] - r) ** 2) / 0.1) * np.exp(-((K[:, None] - K) ** 2) / 0.5)
    arms = RECIPE_SD**2 * same + OWN_SD**2 * own
    arms += R_SD**2 * np.exp(-((r[:, None] - r) ** 2) / 0.3)
    arms += K_SD**2 * (np.exp(-((K[:, None] - K) ** 2) / 2.0) + filtered[:, None] * filtered)
    grown = _grown(x)
    return np.asarray(LEVEL_SD**2 + SLOPE_SD**2 * x[:, None] * x + arms * grown[:, None] * grown)


def _size(points: Sequence[tuple[Arm, float]], facts: Facts) -> Floats:
    own = facts.pilot_demos + facts.pilot_continuations
    return np.log(np.maximum([tokens for _, tokens in points], 1.0) / own)


def _grown(x: Floats) -> Floats:
    """How much of the arms' differences shows at a size."""
    return np.asarray(0.4 + 0.6 / (1 + np.exp(-(x + 0.5))))
