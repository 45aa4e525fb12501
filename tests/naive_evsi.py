"""EVSI the slow way: draw a truth, draw the data of n more tasks, update, choose; and in closed form."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm


def nested(
    mean: np.ndarray, cov: np.ndarray, *, tasks: int, more: int, draws: int, rng: np.random.Generator
) -> float:
    """Gaussian belief N(mean, cov) of a pilot of `tasks`; a task's noise is cov * tasks."""
    truth = rng.multivariate_normal(mean, cov, size=draws)
    data = truth + rng.multivariate_normal(np.zeros(len(mean)), cov * tasks / more, size=draws)
    posterior = (tasks * mean + more * data) / (tasks + more)
    return float(posterior.max(1).mean() - mean.max())


def two_options(ahead: float, spread: float, *, tasks: int, more: int) -> float:
    """Two options whose difference is N(ahead, spread^2): unit normal loss (Raiffa and Schlaifer 1961)."""
    sigma = spread * np.sqrt(more / (tasks + more))
    z = abs(ahead) / sigma
    return float(sigma * (norm.pdf(z) - z * norm.sf(z)))
