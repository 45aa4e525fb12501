"""What is believed of arms at budgets, as draws of the logit of pass@1, and what follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    logits: Floats
    """[D, A, B] draws of the logit of pass@1, the same for equal seeds."""

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
