"""Coverage: how much of a class is learnt from n labelled turns, when its contexts differ in frequency.

The student is teacher-like in a context that was labelled n times with chance g(n) = n / (n + kappa).
Which contexts a class has, and how often each comes, is a Pitman-Yor law with discount a and strength b
(a < 0: finitely many). A context met at random then has a frequency q ~ Beta(1 - a, b + a), so that

    m(n) = E_q E_{c ~ Poisson(n q)} g(c)

with no context in it that the pilot did not happen to meet. (a, b) is inferred from which contexts of the
class several tasks share: the likelihood of a partition (Pitman 1995). One task counts once, however long
the student was stuck there.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import gammaln
from scipy.stats import beta as beta_law

from simulate.plan.classes import Classes
from simulate.plan.pilot import Floats, Ints, Steps

DISCOUNTS = (-4.0, -1.0, -0.4, 0.0, 0.25, 0.5, 0.75)
STRENGTHS = np.geomspace(0.5, 2e4, 22)
KAPPAS = np.geomspace(0.05, 50, 10)
LABELS = np.geomspace(1e-3, 1e7, 101)
_QUANTILES = (np.arange(40) + 0.5) / 40


def laws() -> list[tuple[float, float]]:
    """Every (a, b) of the grid that is a law: b > -a."""
    return [(a, b - a if a < 0 else b) for a in DISCOUNTS for b in STRENGTHS]


def law_posterior(steps: Steps, classes: Classes) -> Floats:
    """[X, laws] posterior of the grid's laws for each class, uniform prior."""
    out = np.zeros((classes.n, len(laws())))
    for x in range(classes.n):
        here = classes.label == x
        pairs = np.unique(np.column_stack([steps.node[here], steps.cluster[here]]), axis=0)
        counts = np.unique(pairs[:, 0], return_counts=True)[1]
        loglik = np.array([_loglik(counts, a, b) for a, b in laws()])
        out[x] = np.exp(loglik - loglik.max())
    return np.asarray(out / out.sum(1, keepdims=True))


def mastery(labels: Floats, law: Ints, kappa: Floats) -> Floats:
    """[D, X] m at labels [D, X], each class with the grid's law number [D, X], kappa [D]."""
    table = mastery_table()
    at_n = _position(labels, LABELS)
    at_k = _position(kappa, KAPPAS)[:, None]
    k, n = np.minimum(at_k.astype(int), len(KAPPAS) - 2), np.minimum(at_n.astype(int), len(LABELS) - 2)
    u, v = at_k - k, at_n - n
    low = table[law, k, n] * (1 - v) + table[law, k, n + 1] * v
    high = table[law, k + 1, n] * (1 - v) + table[law, k + 1, n + 1] * v
    return np.asarray((low * (1 - u) + high * u) * np.minimum(labels, LABELS[0]) / LABELS[0])


@lru_cache(maxsize=1)
def mastery_table() -> Floats:
    """[laws, KAPPAS, LABELS]"""
    rate = np.geomspace(1e-10, 1e7, 341)
    v, weight = np.polynomial.legendre.leggauss(80)
    v, weight = (v + 1) / 2, weight / 2
    # E n / (n + kappa) for n ~ Poisson(rate) is 1 - int_0^1 exp(-rate (1 - v^(1 / kappa))) dv.
    learnt = [(weight * -np.expm1(-rate[:, None] * (1 - v ** (1 / kappa)))).sum(1) for kappa in KAPPAS]
    table = np.zeros((len(laws()), len(KAPPAS), len(LABELS)))
    for row, (a, b) in enumerate(laws()):
        q = beta_law.ppf(_QUANTILES, 1 - a, b + a)
        at = np.log(np.maximum(LABELS[:, None] * q, rate[0]))
        for k, curve in enumerate(learnt):
            table[row, k] = np.interp(at, np.log(rate), curve).mean(1)
    return table


def _loglik(counts: Ints, a: float, b: float) -> float:
    """Log likelihood of a partition with these block sizes."""
    K, n = len(counts), int(counts.sum())
    i = np.arange(1, K)
    if a < 0 and (b + i * a <= 0).any():
        return -np.inf
    new = np.log(b + i * a).sum()
    return float(new - gammaln(b + n) + gammaln(b + 1) + (gammaln(counts - a) - gammaln(1 - a)).sum())


def _position(values: Floats, grid: Floats) -> Floats:
    inside = np.clip(values, grid[0], grid[-1])
    return np.asarray(np.log(inside / grid[0]) / np.log(grid[1] / grid[0]))
