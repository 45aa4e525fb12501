"""Coverage: how often the contexts of a class come, and how many of them a pilot did not happen to meet.

Contexts of a class follow a Pitman-Yor law with discount a and strength b (a < 0: finitely many). (a, b)
is inferred from which contexts several tasks share: the likelihood of a partition (Pitman 1995). One task
counts once, however long the student was stuck there. A pilot's contexts are mostly met once, which fits
every heavy tail; the prior therefore prefers fewer contexts and lighter tails, mildly.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from analysis.plan.classes import Classes
from analysis.plan.pilot import Floats, Ints, Steps

DISCOUNTS = (-4.0, -1.0, -0.4, 0.0, 0.25, 0.5, 0.75)
STRENGTHS = np.geomspace(0.5, 2e4, 22)


def laws() -> list[tuple[float, float]]:
    """Every (a, b) of the grid that is a law: b > -a."""
    return [(a, b - a if a < 0 else b) for a in DISCOUNTS for b in STRENGTHS]


def prior() -> Floats:
    """[laws] log prior, up to a constant: (1 - a)^2 / sqrt(10 + b), with a = 0 where it is below."""
    a, b = np.array(laws()).T
    return np.asarray(2 * np.log(1 - np.maximum(a, 0.0)) - 0.5 * np.log(10 + b))


def law_posterior(node: Ints, steps: Steps, classes: Classes) -> Floats:
    """[X, laws] posterior of the grid's laws for each class, of contexts or states `node` [N]."""
    out = np.zeros((classes.n, len(laws())))
    for x in range(classes.n):
        here = classes.label == x
        pairs = np.unique(np.column_stack([node[here], steps.cluster[here]]), axis=0)
        counts = np.unique(pairs[:, 0], return_counts=True)[1]
        log = np.array([_loglik(counts, a, b) for a, b in laws()]) + prior()
        out[x] = np.exp(log - log.max())
    return np.asarray(out / out.sum(1, keepdims=True))


def _loglik(counts: Ints, a: float, b: float) -> float:
    """Log likelihood of a partition with these block sizes."""
    K, n = len(counts), int(counts.sum())
    i = np.arange(1, K)
    if a < 0 and (b + i * a <= 0).any():
        return -np.inf
    new = np.log(b + i * a).sum()
    return float(new - gammaln(b + n) + gammaln(b + 1) + (gammaln(counts - a) - gammaln(1 - a)).sum())
