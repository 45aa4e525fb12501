"""Which training next: the expected fall of regret per minute of each possible (arm, size)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit  # type: ignore[import-untyped, unused-ignore]

from analysis.curves.arms import Arm, features
from analysis.curves.curves import Posterior, expected
from analysis.curves.prior import Prior


@dataclass(frozen=True)
class Possible:
    """A training that could be made: `arm` at `size` (pilot's cost), `minutes` with evaluation, `episodes`
    of evaluation."""

    arm: Arm
    size: float
    minutes: float = 1.0
    episodes: int = 400


@dataclass(frozen=True)
class Worth:
    """Expected fall of the recommendation's regret, in pass@1, by one training, and per minute."""

    training: Possible
    fall: float
    per_minute: float


def next_training(post: Posterior, possible: Sequence[Possible], prior: Prior) -> list[Worth]:
    """Every possible training with its worth, the best per minute first (knowledge gradient with correlated
    beliefs).

    A training with row x and variance s2 moves the candidates' means by Z * X V x / sqrt(x V x + s2), Z
    standard normal;
    its worth is E max(moved E J) - max(E J), with d J / d logit at the centre. Subset seeds are alike before
    they are drawn.
    """
    J = expected(post)
    slope = expit(post.center) * (1 - expit(post.center))
    b, V = post.beta
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    found = []
    for t in possible:
        x = features(t.arm, t.size)
        p = float(expit(x @ b))
        noise = 1 / (t.episodes * p * (1 - p)) + prior.unlike(t.size)
        step = slope * (post.rows @ (V @ x)) / np.sqrt(x @ V @ x + noise)
        fall = float(weights @ (J[None] + nodes[:, None] * step[None]).max(1) - J.max())
        found.append(Worth(t, max(fall, 0.0), max(fall, 0.0) / t.minutes))
    return sorted(found, key=lambda w: -w.per_minute)
