"""A model of learning curves: from small trainings and pilot facts to every candidate at every budget.

On the logit scale J(arm, size) = features(arm, size) beta. The pair (beta, facts) has the prior of
`prior.py`, a
mixture of Gaussians. Trainings and facts are linear Gaussian observations of it, so the posterior is again a
mixture of Gaussians.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr  # type: ignore[import-untyped, unused-ignore]

from analysis.curves.arms import DIMENSION, Arm, Array, features
from analysis.curves.prior import Facts, Prior, fact_vector


@dataclass(frozen=True)
class Training:
    """One student trained on a cut of the pilot (or of a purchase), and its evaluation.

    Attributes:
        arm: what it was cut as; r is replaced by the share of on-policy tokens that the cut really has.
        demo_tokens, op_tokens: teacher tokens of the cut (C_i) in units of the pilot's cost; their sum is
            the size.
        seed: of subset and optimiser.
        successes, attempts: one entry a task, in the same order; rewards of a task may be fractions.
    """

    arm: Arm
    demo_tokens: float
    op_tokens: float
    seed: int
    successes: tuple[float, ...]
    attempts: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.successes or len(self.successes) != len(self.attempts):
            raise ValueError("a training needs successes and attempts of the same, non-empty list of tasks")
        if any(not (n > 0 and 0 <= k <= n) for k, n in zip(self.successes, self.attempts, strict=True)):
            raise ValueError("successes of a task must lie between 0 and its attempts")
        if not self.size > 0:
            raise ValueError("a training needs a positive size in teacher tokens")

    @property
    def size(self) -> float:
        """Teacher tokens in units of the pilot's cost."""
        return self.demo_tokens + self.op_tokens

    @property
    def shown(self) -> Arm:
        """The arm with its real share of on-policy tokens."""
        return Arm(self.arm.recipe, self.arm.K, self.op_tokens / self.size, self.arm.traces)


@dataclass(frozen=True)
class Posterior:
    """What is believed about N candidates, as a mixture of Gaussians on the logit scale.

    Attributes:
        arms, sizes: [N] the candidates.
        weights: [C]; means: [C, N]; covariances: [C, N, N], lack of fit of each candidate included.
        beta: (mean [53], covariance [53, 53]) of the coefficients, all components together.
        rows: [N, 53] features of the candidates.
    """

    arms: tuple[Arm, ...]
    sizes: tuple[float, ...]
    weights: Array
    means: Array
    covariances: Array
    beta: tuple[Array, Array]
    rows: Array

    @property
    def center(self) -> Array:
        """[N] mean on the logit scale."""
        return self.weights @ self.means

    @property
    def covariance(self) -> Array:
        """[N, N] covariance on the logit scale."""
        d = self.means - self.center
        return np.asarray(
            np.einsum("c,cij->ij", self.weights, self.covariances)
            + np.einsum("c,ci,cj->ij", self.weights, d, d)
        )


def measured(training: Training) -> tuple[float, float]:
    """(logit of pass@1, its variance) of an evaluation, with errors clustered by task.

    The variance is never below the binomial one divided by two: a few tasks cannot prove less noise than
        that.
    """
    k, n = np.array(training.successes, float), np.array(training.attempts, float)
    total, tasks = n.sum(), len(n)
    p = float((k.sum() + 0.5) / (total + 1))
    binomial = p * (1 - p) / total
    clustered = (
        tasks / (tasks - 1) * float(((k - p * n) ** 2).sum()) / total**2
        if tasks > 1
        else binomial * float(n.max())
    )
    return float(np.log(p / (1 - p))), max(clustered, binomial / 2) / (p * (1 - p)) ** 2


def observations(trainings: Sequence[Training], prior: Prior) -> tuple[Array, Array, Array]:
    """Rows [n, 53], logits [n] and variances [n], one for all trainings of one arm at one size (within 5 %).

    Evaluation noise averages out over trainings of one form. What they share does not: their subsets overlap
    where the pilot has no more to give, and the curve need not be a line between the knots.
    """
    forms: dict[tuple[str, float, int, int], list[Training]] = {}
    for t in sorted(trainings, key=lambda t: (t.arm, t.size, t.seed, t.successes)):
        key = (t.arm.recipe, t.arm.K, round(10 * t.shown.r), round(float(np.log(t.size)) / 0.1))
        forms.setdefault(key, []).append(t)
    rows, logits, noise = np.zeros((len(forms), DIMENSION)), np.zeros(len(forms)), np.zeros(len(forms))
    for k, group in enumerate(forms.values()):
        seen = np.array([measured(t) for t in group])
        weight = 1 / seen[:, 1]
        rows[k] = weight @ np.array([features(t.shown, t.size) for t in group]) / weight.sum()
        logits[k] = weight @ seen[:, 0] / weight.sum()
        noise[k] = 1 / weight.sum() + prior.unlike(float(np.mean([t.size for t in group])))
    return rows, logits, noise


def conditioned(
    prior: Prior, rows: Array, logits: Array, noise: Array, facts: Array
) -> tuple[Array, Array, Array]:
    """Weights [C], means [C, D] and covariances [C, D, D] of (beta, facts) given observations; NaN facts are
    left out."""
    known = np.flatnonzero(np.isfinite(facts))
    z = (facts[known] - prior.fact_mean[known]) / prior.fact_sd[known]
    n, D = len(logits), prior.means.shape[1]
    H = np.zeros((n + len(known), D))
    H[:n, :DIMENSION] = rows
    H[n + np.arange(len(known)), DIMENSION + known] = 1.0
    y = np.concatenate([logits, z])
    R = np.concatenate([noise, np.full(len(known), prior.fact_noise)])
    if not len(y):
        weights = np.exp(prior.log_weights - prior.log_weights.max())
        return weights / weights.sum(), prior.means, prior.covariances
    logs, means, covariances = [], [], []
    for weight, m, S in zip(prior.log_weights, prior.means, prior.covariances, strict=True):
        L = np.linalg.cholesky(H @ S @ H.T + np.diag(R))
        a, B = np.linalg.solve(L, y - H @ m), np.linalg.solve(L, H @ S)
        logs.append(weight - 0.5 * a @ a - np.log(np.diag(L)).sum())
        means.append(m + B.T @ a)
        covariances.append(S - B.T @ B)
    weights = np.exp(np.array(logs) - max(logs))
    return weights / weights.sum(), np.array(means), np.array(covariances)


def posterior(
    trainings: Sequence[Training], facts: Facts, arms: Sequence[Arm], budgets: Sequence[float], prior: Prior
) -> Posterior:
    """Beliefs about every arm at every budget, in the order arms x budgets.

    Args:
        trainings: evaluated small trainings, in any order; may be empty.
        facts: of the pilot; an empty `Facts()` is allowed.
        arms: candidates.
        budgets: B / (pilot's cost), the pilot's own cost included.
        prior: usually `prior.shipped()`.
    """
    weights, means, covariances = conditioned(prior, *observations(trainings, prior), fact_vector(facts))
    pairs = [(a, float(b)) for a in arms for b in budgets]
    X = np.array([features(a, b, final=True) for a, b in pairs])
    off, lack = (
        np.array([prior.offset(a, b) for a, b in pairs]),
        np.array([prior.lack_of_fit(b) for _, b in pairs]),
    )
    b, V = means[:, :DIMENSION], covariances[:, :DIMENSION, :DIMENSION]
    center = weights @ b
    d = b - center
    whole = np.einsum("c,cij->ij", weights, V) + np.einsum("c,ci,cj->ij", weights, d, d)
    return Posterior(
        tuple(a for a, _ in pairs),
        tuple(s for _, s in pairs),
        weights,
        b @ X.T + off,
        np.array([X @ v @ X.T + np.diag(lack) for v in V]),
        (center, whole),
        X,
    )


def expected(post: Posterior) -> Array:
    """[N] E J of each candidate."""
    x, w = np.polynomial.hermite_e.hermegauss(15)
    sd = np.sqrt(np.maximum(np.einsum("cii->ci", post.covariances), 0))
    return np.asarray(post.weights @ (expit(post.means[:, :, None] + sd[:, :, None] * x) @ (w / w.sum())))


def bands(post: Posterior, level: float = 0.9) -> tuple[Array, Array]:
    """[N] low and high: central interval of J at `level`, by bisection of the mixture's distribution
    function."""
    sd = np.sqrt(np.maximum(np.einsum("cii->ci", post.covariances), 1e-12))

    def quantile(q: float) -> Array:
        low, high = (post.means - 9 * sd).min(0), (post.means + 9 * sd).max(0)
        for _ in range(50):
            middle = (low + high) / 2
            below = post.weights @ ndtr((middle - post.means) / sd) < q
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(expit((low + high) / 2))

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def draws(post: Posterior, n: int, seed: int = 0) -> Array:
    """[n, N] draws of J of all candidates together."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, post.weights)
    parts = []
    for k, m, S in zip(counts, post.means, post.covariances, strict=True):
        w, U = np.linalg.eigh(S)
        parts.append(m + (rng.standard_normal((k, len(m))) * np.sqrt(np.maximum(w, 0))) @ U.T)
    return np.asarray(expit(np.concatenate(parts)))


def p_best(sample: Array) -> Array:
    """[N] probability that a candidate is the best of those in `draws`."""
    return np.bincount(sample.argmax(1), minlength=sample.shape[1]) / len(sample)


def expected_regret(sample: Array) -> Array:
    """[N] E (best J - J of the candidate)."""
    return np.asarray((sample.max(1, keepdims=True) - sample).mean(0))


def distinguishable(trainings: Sequence[Training], permutations: int = 999, seed: int = 0) -> float:
    """p-value of "all arms are equal" in the trainings: permutation test of the weighted squares between
    arms.

    A linear trend in log size is removed first. With no information (shuffled rewards) it is uniform; `plan`
    says
    `no_preference` above .05. It is 1 where no two arms, or no arm twice, were trained.
    """
    names = [(t.arm.recipe, t.arm.K, t.arm.r) for t in trainings]
    levels = sorted(set(names))
    if len(levels) < 2 or len(names) == len(levels):
        return 1.0
    y = np.array([measured(t)[0] for t in trainings])
    u = np.log([t.size for t in trainings])
    A = np.column_stack([np.ones(len(y)), u])[:, : 1 + int(np.ptp(u) > 1e-9)]
    residual = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    group = np.array([levels.index(x) for x in names])
    size = np.bincount(group)
    rng = np.random.default_rng(seed)

    def between(x: Array) -> float:
        return float((np.bincount(group, x) ** 2 / size).sum())

    seen = between(residual)
    return (1 + sum(between(rng.permutation(residual)) >= seen - 1e-12 for _ in range(permutations))) / (
        1 + permutations
    )
