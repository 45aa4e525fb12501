"""A model of learning curves: from small trainings and pilot facts to every candidate at every budget.

On the logit scale J(arm, size) = features(arm, size) beta. The pair (beta, facts) has the prior of
`prior.py`, a mixture of Gaussians. Trainings and facts are linear Gaussian observations of it, so the
posterior is again a mixture of Gaussians.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_ndtr, logsumexp  # type: ignore[import-untyped, unused-ignore]

from analysis.curves.arms import DIMENSION, KNOTS, Arm, Array, features
from analysis.curves.evidence import Training, observations
from analysis.curves.prior import ELSEWHERE, UNSEEN, Facts, Prior, fact_vector, shipped

SURE = 0.9
"""Largest probability that facts alone can give to a student that becomes the teacher."""


@dataclass(frozen=True)
class Posterior:
    """What is believed of the coefficients beta, as a mixture of Gaussians, and of candidates by it.

    Attributes:
        weights: [C].
        means: [C, 54]; covariances: [C, 54, 54].
        prior: what it was conditioned from; knows how far candidates depart from their features.
        sunk: data that every final student is trained on beside, in pilot costs.
    """

    weights: Array
    means: Array
    covariances: Array
    prior: Prior
    sunk: float = 0.0

    @property
    def mean(self) -> Array:
        """[54] of all components together."""
        return np.asarray(self.weights @ self.means)

    @property
    def unlike(self) -> float:
        """Probability that the pilot is unlike all worlds that the prior was learnt from."""
        return self._weight((ELSEWHERE,))

    @property
    def unseen(self) -> float:
        """Probability that its family is none of those that the prior was learnt from."""
        return self._weight(UNSEEN)

    def _weight(self, names: Sequence[str]) -> float:
        return float(sum(w for w, n in zip(self.weights, self.prior.names, strict=True) if n in names))

    @property
    def covariance(self) -> Array:
        """[54, 54] of all components together."""
        d = self.means - self.mean
        within = np.einsum("c,cij->ij", self.weights, self.covariances)
        return np.asarray(within + np.einsum("c,ci,cj->ij", self.weights, d, d))

    def final(self, arms: Sequence[Arm], size: float) -> tuple[Array, Array, float]:
        """Of final students at a size: features [A, 54], departures from them [A], and their variance."""
        X = np.array([features(arm, size, sunk=self.sunk, final=True) for arm in arms])
        every = size + self.sunk
        return X, np.array([self.prior.offset(arm, every) for arm in arms]), self.prior.lack_of_fit(every)

    def logits(self, arms: Sequence[Arm], size: float) -> tuple[Array, Array]:
        """Means [C, A] and standard deviations [C, A] of the logit of J of each arm at a size."""
        X, off, lack = self.final(arms, size)
        variance = np.array([((X @ V) * X).sum(1) for V in self.covariances]) + lack
        return self.means @ X.T + off, np.sqrt(np.maximum(variance, 1e-12))

    def expected(self, arms: Sequence[Arm], size: float) -> Array:
        """[A] E J of each arm at a size."""
        x, w = np.polynomial.hermite_e.hermegauss(15)
        means, sd = self.logits(arms, size)
        return np.asarray(self.weights @ (expit(means[:, :, None] + sd[:, :, None] * x) @ (w / w.sum())))


def conditioned(
    prior: Prior, rows: Array, logits: Array, noise: Array, facts: Array
) -> tuple[Array, Array, Array]:
    """Weights [C], means [C, D] and covariances [C, D, D] of (beta, facts) given observations.

    noise: [n, n] covariances of the errors of `logits`. NaN facts are left out.
    """
    known = np.flatnonzero(np.isfinite(facts))
    z = (facts[known] - prior.fact_mean[known]) / prior.fact_sd[known]
    n, D = len(logits), prior.means.shape[1]
    H = np.zeros((n + len(known), D))
    H[:n, :DIMENSION] = rows
    H[n + np.arange(len(known)), DIMENSION + known] = 1.0
    y = np.concatenate([logits, z])
    R = np.diag(np.full(n + len(known), prior.fact_noise))
    R[:n, :n] = noise
    by_facts, by_all, means, covariances = [], [], [], []
    for name, m, S in zip(prior.names, prior.means, prior.covariances, strict=True):
        by_facts.append(_update(m, S, H[n:], y[n:], R[n:, n:])[0])
        found, mean, covariance = _update(m, S, H, y, R)
        if name == ELSEWHERE:
            more, mean, covariance = _rising(mean, covariance)
            found += more - _rising(m, S)[0]
        by_all.append(found)
        means.append(mean)
        covariances.append(covariance)
    told = np.array(by_facts)
    logs = _bounded(prior, prior.log_weights + told) + np.array(by_all) - told
    weights = np.exp(logs - logs.max())
    return weights / weights.sum(), np.array(means), np.array(covariances)


def _update(m: Array, S: Array, H: Array, y: Array, R: Array) -> tuple[float, Array, Array]:
    """Log likelihood, mean and covariance of a Gaussian after observing y = H x + noise of covariances R."""
    L = np.linalg.cholesky(H @ S @ H.T + R)
    a, B = np.linalg.solve(L, y - H @ m), np.linalg.solve(L, H @ S)
    return float(-0.5 * a @ a - np.log(np.diag(L)).sum()), m + B.T @ a, S - B.T @ B


def _rising(mean: Array, covariance: Array) -> tuple[float, Array, Array]:
    """A Gaussian restricted to curves whose level at the last knot is above that at the second.

    The log probability of that, and its mean and covariance then (moments of a truncated normal; Johnson,
    Kotz and Balakrishnan 1994, 13.10). Worlds say at what rate levels rise; where none is like the pilot,
    only that they do.
    """
    rise = np.zeros(len(mean))
    rise[1], rise[len(KNOTS) - 1] = -1.0, 1.0
    along = covariance @ rise
    sd = float(np.sqrt(along @ rise))
    along, a = along / sd, float(mean @ rise) / sd
    told = float(log_ndtr(a))
    mills = float(np.exp(-0.5 * a**2 - 0.5 * np.log(2 * np.pi) - told))
    return told, mean + mills * along, covariance - mills * (mills + a) * np.outer(along, along)


def _bounded(prior: Prior, logs: Array) -> Array:
    """[C] log weights by facts, those of components whose student is a table being SURE in all at most.

    In the worlds that were learnt from, teachers that never fail and short horizons come with tables by
    accident. Whether curves go on rising is for trainings to say.
    """
    table = np.array(prior.tables, bool)
    if table.all() or not table.any():
        return logs
    odds = logsumexp(logs[table]) - logsumexp(logs[~table])
    return np.asarray(logs - table * max(odds - np.log(SURE / (1 - SURE)), 0.0))


def posterior(trainings: Sequence[Training], facts: Facts, prior: Prior | None = None) -> Posterior:
    """What is believed of learning curves.

    Args:
        trainings: evaluated small trainings, in any order; may be empty.
        facts: of the pilot; an empty `Facts()` is allowed.
        prior: None: the shipped one.
    """
    known = shipped() if prior is None else prior
    seen = observations(trainings, known, pilot=facts.pilot)
    weights, means, covariances = conditioned(known, *seen, fact_vector(facts))
    return Posterior(
        weights,
        means[:, :DIMENSION],
        covariances[:, :DIMENSION, :DIMENSION],
        known,
        sunk=facts.sunk / facts.pilot,
    )
