"""Joint draws of pass@1 of arms at budgets, and what follows from them: bands, P(best), expected loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.curves.arms import DIMENSION, Arm, Array
from analysis.curves.curves import Posterior

LEVEL = 0.9
"""Of bands, and of the set that is not worse than the best."""
DRAWS = 2000


@dataclass(frozen=True)
class Draws:
    """Of A arms at B budgets."""

    budgets: Array
    """[B] teacher tokens bought beside the pilot, rising."""
    logits: Array
    """[D, A, B] draws of the logit of pass@1, the same for equal seeds."""

    def at(self, tokens: Sequence[float] | Array) -> Array:
        """[D, A] draws of pass@1, arm a with tokens[a] bought: between budgets by log tokens."""
        x = np.clip(np.asarray(tokens, float), self.budgets[0], self.budgets[-1])
        right = np.clip(np.searchsorted(self.budgets, x), 1, len(self.budgets) - 1)
        low, high = np.log(self.budgets[right - 1]), np.log(self.budgets[right])
        share = (np.log(x) - low) / (high - low)
        arm = np.arange(len(x))
        logits = self.logits[:, arm, right - 1] * (1 - share) + self.logits[:, arm, right] * share
        return np.asarray(1 / (1 + np.exp(-logits)))


def drawn(
    post: Posterior, arms: Sequence[Arm], budgets: Sequence[float], *, pilot: float, seed: int = 0
) -> Draws:
    """DRAWS joint draws of each arm at each budget.

    Args:
        post: what is believed.
        arms: A of them.
        budgets: [B] teacher tokens (C_i) bought beside the pilot, rising.
        pilot: teacher tokens of the pilot.
        seed: of the draws.
    """
    sizes = [(pilot + budget) / pilot for budget in budgets]
    rows, off, lack = zip(*(post.final(arms, size) for size in sizes), strict=True)
    rng = np.random.default_rng(seed)
    normal, unfit = rng.standard_normal((DRAWS, DIMENSION - 1)), _alike(arms, rng)
    # The last effect, of mixed contexts, is drawn last: the draws of other arms do not depend on it.
    normal = np.column_stack([normal, rng.standard_normal(DRAWS)])
    beta = np.empty((DRAWS, DIMENSION))
    first = 0
    for share, mean, cov in zip(np.cumsum(post.weights), post.means, post.covariances, strict=True):
        last = round(DRAWS * share)
        root = np.linalg.cholesky(cov + 1e-9 * np.trace(cov) / DIMENSION * np.eye(DIMENSION))
        beta[first:last] = mean + normal[first:last] @ root.T
        first = last
    logits = np.einsum("df,baf->dab", beta, rows, optimize=True)
    logits += np.transpose(off) + unfit[:, :, None] * np.sqrt(lack)
    return Draws(np.asarray(budgets, float), logits)


def _alike(arms: Sequence[Arm], rng: np.random.Generator) -> Array:
    """[DRAWS, A] standard normal departures, the same for an arm with either choice of pilot traces."""
    forms = [(arm.recipe, arm.K, arm.r) for arm in arms]
    distinct = list(dict.fromkeys(forms))
    unlike = rng.standard_normal((DRAWS, len(distinct)))
    return np.asarray(unlike[:, [distinct.index(form) for form in forms]])


def band(draws: Array) -> Array:
    """[2, A] LEVEL bands of draws [D, A]."""
    return np.asarray(np.quantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), axis=0))


def p_best(draws: Array) -> Array:
    """[A] share of draws [D, A] in which each is the best."""
    return np.asarray(np.bincount(draws.argmax(1), minlength=draws.shape[1]) / len(draws))


def regret(draws: Array) -> Array:
    """[A] expected loss against the best arm."""
    return np.asarray((draws.max(1, keepdims=True) - draws).mean(0))


def not_worse(draws: Array, best: int) -> NDArray[np.bool_]:
    """[A] arms that `best` does not beat with probability LEVEL."""
    beaten = (draws[:, [best]] > draws).mean(0) >= LEVEL
    beaten[best] = False
    return np.asarray(~beaten)
