"""The posterior of curves against densities written out: weights, means, and what facts alone may claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from test_curves import FACTS, toy

from analysis.curves.arms import DIMENSION, KNOTS
from analysis.curves.curves import SURE, conditioned
from analysis.curves.prior import ELSEWHERE, Prior, fact_vector

FOUND = fact_vector(FACTS)
KNOWN = np.flatnonzero(np.isfinite(FOUND))
Seen = tuple[np.ndarray, np.ndarray, np.ndarray]


def seen_with(prior: Prior, rng: np.random.Generator, n: int = 4) -> Seen:
    """Observations whose errors are correlated."""
    rows, root = rng.standard_normal((n, DIMENSION)), rng.standard_normal((n, n))
    return rows, rng.standard_normal(n), 0.1 * (root @ root.T + 0.2 * np.eye(n))


def naive(prior: Prior, seen: Seen) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """[C] log densities of facts and of all, and [C, D] means and [C, D, D] covariances given all."""
    rows, y, noise = seen
    n, D = len(y), prior.means.shape[1]
    H, R = np.zeros((n + len(KNOWN), D)), np.zeros((n + len(KNOWN), n + len(KNOWN)))
    H[:n, :DIMENSION], R[:n, :n] = rows, noise
    for at, fact in enumerate(KNOWN, n):
        H[at, DIMENSION + fact], R[at, at] = 1.0, prior.fact_noise
    every = np.concatenate([y, ((FOUND - prior.fact_mean) / prior.fact_sd)[KNOWN]])
    facts, both, means, covariances = [], [], [], []
    for m, S in zip(prior.means, prior.covariances, strict=True):
        V = H @ S @ H.T + R
        facts.append(multivariate_normal(H[n:] @ m, V[n:, n:]).logpdf(every[n:]))
        both.append(multivariate_normal(H @ m, V).logpdf(every))
        gain = S @ H.T @ np.linalg.inv(V)
        means.append(m + gain @ (every - H @ m))
        covariances.append(S - gain @ H @ S)
    return np.array(facts), np.array(both), np.array(means), np.array(covariances)


@pytest.fixture
def three() -> Prior:
    """A prior of three components in which facts have units."""
    rng = np.random.default_rng(2)
    made = replace(toy(3), fact_mean=rng.standard_normal(12), fact_sd=rng.uniform(2, 3, 12))
    return replace(made, log_weights=np.log([0.2, 0.3, 0.5]))


def normal(logs: np.ndarray) -> np.ndarray:
    return np.exp(logs - logsumexp(logs))


@pytest.mark.parametrize("seed", range(4))
def test_components_are_weighted_by_the_density_of_what_was_seen(three: Prior, seed: int) -> None:
    seen = seen_with(three, np.random.default_rng(seed))
    _, both, means, covariances = naive(three, seen)
    found = conditioned(three, *seen, FOUND)
    assert found[0] == pytest.approx(normal(three.log_weights + both))
    assert np.allclose(found[1], means)
    assert np.allclose(found[2], covariances)


@pytest.mark.parametrize("seed", range(4))
def test_a_task_unlike_all_worlds_is_weighted_by_curves_that_rise(three: Prior, seed: int) -> None:
    """p(data | rising) = p(data) P(rising | data) / P(rising)."""
    prior = replace(three, names=("c0", ELSEWHERE, "c2"))
    seen = seen_with(prior, np.random.default_rng(seed))
    _, both, means, covariances = naive(prior, seen)
    rise = np.zeros(prior.means.shape[1])
    rise[[1, len(KNOTS) - 1]] = -1.0, 1.0

    def rising(mean: np.ndarray, covariance: np.ndarray) -> float:
        return float(norm.logcdf(mean @ rise / np.sqrt(rise @ covariance @ rise)))

    both[1] += rising(means[1], covariances[1]) - rising(prior.means[1], prior.covariances[1])
    assert conditioned(prior, *seen, FOUND)[0] == pytest.approx(normal(prior.log_weights + both))


def test_trainings_may_make_a_student_the_teacher_where_facts_may_not(three: Prior) -> None:
    means = three.means.copy()
    means[2, DIMENSION:] = np.nan_to_num((FOUND - three.fact_mean) / three.fact_sd)
    means[:2, DIMENSION:] = means[2, DIMENSION:] + 4.0
    prior = replace(three, means=means, tables=(False, False, True))
    passed = []
    for seed in range(6):
        seen = seen_with(prior, np.random.default_rng(seed))
        facts, both, *_ = naive(prior, seen)
        logs = prior.log_weights + facts
        assert normal(logs)[2] > SURE
        logs[2] = logsumexp(logs[:2]) + np.log(SURE / (1 - SURE))
        weights = conditioned(prior, *seen, FOUND)[0]
        assert weights == pytest.approx(normal(logs + both - facts))
        passed.append(weights[2] > SURE)
    assert any(passed)
