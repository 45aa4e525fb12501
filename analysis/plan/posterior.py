"""What is believed of arms at budgets: Gaussian on the logit of pass@1, and what follows from draws of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.plan.arms import Arm
from analysis.plan.pilot import Flags, Floats

LEVEL = 0.9
"""Of bands, and of the set that is not worse than the best."""
DRAWS = 2000


@dataclass(frozen=True)
class Posterior:
    """A arms at B budgets."""

    budgets: Floats
    """[B] teacher tokens bought beside the pilot, rising."""
    mean: Floats
    """[A, B] of logit pass@1."""
    cov: Floats
    """[A * B, A * B]; row a * B + b."""
    seed: int = 0

    @cached_property
    def logits(self) -> Floats:
        """[D, A, B] draws, the same for equal seeds."""
        rng = np.random.default_rng(self.seed)
        # A little more than the covariance: its factor then hardly depends on how sums were rounded.
        root = np.linalg.cholesky(
            self.cov + 1e-8 * np.trace(self.cov) / len(self.cov) * np.eye(len(self.cov))
        )
        normal = rng.standard_normal((DRAWS, len(root)))
        return np.asarray(self.mean.ravel() + normal @ root.T).reshape(DRAWS, *self.mean.shape)

    def at(self, tokens: Sequence[float] | Floats) -> Floats:
        """[D, A] draws of pass@1, arm a with tokens[a] bought: between budgets by log tokens."""
        x = np.clip(np.asarray(tokens, float), self.budgets[0], self.budgets[-1])
        right = np.clip(np.searchsorted(self.budgets, x), 1, len(self.budgets) - 1)
        low, high = np.log(self.budgets[right - 1]), np.log(self.budgets[right])
        share = (np.log(x) - low) / (high - low)
        arm = np.arange(len(x))
        logits = self.logits[:, arm, right - 1] * (1 - share) + self.logits[:, arm, right] * share
        return np.asarray(1 / (1 + np.exp(-logits)))


@dataclass(frozen=True)
class Option:
    """A training that the pilot can supply."""

    arm: Arm
    budget: float
    """Teacher tokens of its cut."""
    seed: int


def band(draws: Floats) -> Floats:
    """[2, A] LEVEL bands of draws [D, A]."""
    return np.asarray(np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0))


def p_best(draws: Floats) -> Floats:
    """[A] share of draws [D, A] in which each is the best."""
    return np.asarray(np.bincount(draws.argmax(1), minlength=draws.shape[1]) / len(draws))


def regret(draws: Floats) -> Floats:
    """[A] expected loss against the best arm."""
    return np.asarray((draws.max(1, keepdims=True) - draws).mean(0))


def not_worse(draws: Floats, best: int) -> Flags:
    """[A] arms that `best` does not beat with probability LEVEL."""
    beaten = (draws[:, [best]] > draws).mean(0) >= LEVEL
    beaten[best] = False
    return np.asarray(~beaten)


def worth(mean: Floats, cross: Floats, noise: Floats, *, order: int = 15) -> Floats:
    """[O] expected rise of the best arm's expectation by one more measurement of each option.

    mean: [A] logits at the budget; cross: [A, O] covariance of arms and options; noise: [O] variance of a
    measurement, the option's own included. The knowledge gradient, by Gauss-Hermite quadrature.
    """
    z, weight = np.polynomial.hermite_e.hermegauss(order)
    moved = mean[:, None, None] + (cross / np.sqrt(noise))[:, :, None] * z
    level = 1 / (1 + np.exp(-moved))
    return np.asarray((level.max(0) @ weight - (level @ weight).max(0)) / weight.sum())
