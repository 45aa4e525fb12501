"""Ratio estimates with standard errors clustered by task: every mean and share in the project is one.

The estimate is R = sum_q A_q / sum_q B_q over tasks q, and its variance by the delta method
C/(C-1) sum_q (A_q - R B_q)^2 / (sum_q B_q)^2 over the C tasks with B_q != 0 (Cochran, Sampling Techniques,
1977, section 6.3). With a single task the standard error is undefined: None, or NaN in one column of many.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.kernels.chunks import Total, chunk_turns, cuts, in_order, kernels_for
from occupancy.kernels.columns import Weights
from occupancy.record.errors import DataError
from occupancy.record.types import Float64, Int64, Trajectories, refuse_not_finite
from occupancy.statistics.conventions import context_weights, sum_of_squares


@dataclass(frozen=True)
class ClusterSums:
    """What ratio estimate, standard error and bootstrap need of the data."""

    numerators: Float64
    """[Q, D] A_q, the sum of w f over the contexts of task q."""
    denominators: Float64
    """[Q] B_q, the sum of w."""
    tasks: Int64
    """[Q] task id of each cluster, rising."""
    weight_squares: float
    """Sum of w^2 over all contexts."""

    @property
    def n_weighted(self) -> int:
        """C, clusters with weight."""
        return int((self.denominators > 0).sum())


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums over clusters."""

    value: Float64
    """[D]"""
    standard_error: Float64 | None
    """[D] by the delta method; None with fewer than two clusters whose denominator is not 0."""


def cluster_sums(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
    part: bool = False,
) -> ClusterSums:
    """Sums of w f and of w by task, f the batch's features: what `ratio` and `bootstrap` take.

    Arguments and errors as in `occupancy`; a batch without features is refused, and one without weight, but
    where it is a `part` of the data.
    """
    values = trajectories.feature_rows
    if values is None:
        raise DataError("a mean of a batch without features: give Trajectories(features=...)")
    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    offsets, kernels = trajectories.offsets, kernels_for(trajectories.n_turns)
    A, B = np.zeros((len(trajectories), values.shape[1])), np.zeros(len(trajectories))

    def add(begin: int, end: int) -> None:
        span = slice(begin, end)
        here = Weights(weights.factor[span], weights.turn)
        kernels.sum_trajectories(offsets[begin : end + 1], values, here, A[span], B[span])

    deque(in_order(add, cuts(offsets, chunk_turns(1)), workers=workers), maxlen=0)
    cluster, tasks = clusters(trajectories)
    numerators = np.stack([sum_by(cluster, column, len(tasks)) for column in A.T], axis=1)
    if not np.isfinite(numerators).all():
        refuse_not_finite(values)
    denominators = sum_by(cluster, B, len(tasks))
    if not part:
        require_weight(float(denominators.sum()), trajectories)
    return ClusterSums(numerators, denominators, tasks, sum_of_squares(weights, trajectories.lengths))


def ratio(sums: ClusterSums, *, over: int | None = None) -> Ratio:
    """Mean of every feature over contexts, or its ratio to feature number `over`, with standard errors.

    Args:
        sums: Sums by task, from `cluster_sums`.
        over: Feature to divide by; by default the weight, which gives the mean.

    Raises:
        DataError: The feature to divide by sums to zero.
    """
    A = sums.numerators
    B = sums.denominators if over is None else A[:, over]
    if B.sum() == 0:
        raise DataError(f"feature {over} sums to zero over all contexts: nothing can be divided by it")
    C = int((B != 0).sum())
    R, error = _ratio_of_sums(A, B[:, None], np.asarray(C))
    return Ratio(R, None if C < 2 else error)


def clustered_ratio(
    numerators: npt.ArrayLike, denominators: npt.ArrayLike, *, cluster: npt.ArrayLike
) -> tuple[Float64, Float64]:
    """Sum of the numerators over sum of the denominators, and its standard error clustered by `cluster`.

    Args:
        numerators: [n, ...] one row an observation.
        denominators: [n, ...] of the same shape; ones give the mean.
        cluster: [n] cluster of each row: integers or text.

    Returns:
        The ratio and its standard error, both [...]; NaN where all denominators are 0, and the error also
        where fewer than two clusters have a denominator.

    Example:
        >>> clustered_ratio([1.0, 0.0, 1.0], [1.0, 1.0, 1.0], cluster=["a", "a", "b"])
    """
    tasks, q = np.unique(cluster, return_inverse=True)
    A = sums_by_cluster(np.asarray(numerators, np.float64), cluster=q, n_clusters=len(tasks))
    B = sums_by_cluster(np.asarray(denominators, np.float64), cluster=q, n_clusters=len(tasks))
    return _ratio_of_sums(A, B, (B != 0).sum(axis=0))


def mean_over_tasks(
    values: npt.ArrayLike, *, task: npt.ArrayLike, cluster: npt.ArrayLike
) -> tuple[Float64, Float64]:
    """Mean over tasks of the mean of each task's values, and its standard error: every success rate is one.

    Args:
        values: [n, ...] one row an attempt.
        task: [n] task of each attempt; all count the same, however many attempts they have.
        cluster: [n] cluster of each attempt.

    Returns:
        The mean and its standard error clustered by `cluster`, both [...]; as of `clustered_ratio`.

    Example:
        >>> mean_over_tasks([1.0, 1.0, 0.0], task=["a", "a", "b"], cluster=["a", "a", "b"])[0]
        0.5
    """
    x = np.asarray(values, np.float64)
    w = np.broadcast_to(task_weights(task).reshape(-1, *[1] * (x.ndim - 1)), x.shape)
    return clustered_ratio(x * w, w, cluster=cluster)


def task_weights(task: npt.ArrayLike) -> Float64:
    """[n] weights of attempts at tasks [n] with which all tasks count the same; their mean is 1."""
    _, q, n = np.unique(task, return_inverse=True, return_counts=True)
    return len(q) / (len(n) * n[q])


def variance_of_sum(values: npt.ArrayLike, *, cluster: npt.ArrayLike, count: int, n_clusters: int) -> float:
    """Variance of the sum of `count` new values, equally many in each of n_clusters new clusters.

    values [n] in their clusters [n] give the variance within clusters and between them, by a one-way analysis
    of variance; where every cluster has one value, all of it is taken to be between them.
    """
    x = np.asarray(values, np.float64)
    _, q, n = np.unique(cluster, return_inverse=True, return_counts=True)
    means = np.bincount(q, x) / n
    within = float(((x - means[q]) ** 2).sum()) / max(len(x) - len(n), 1)
    between = max(float(means.var(ddof=1)) - within * float((1 / n).mean()), 0.0) if len(n) > 1 else 0.0
    return count * within + count**2 / n_clusters * between


def sums_by_cluster(values: Float64, *, cluster: Int64, n_clusters: int) -> Float64:
    """[n_clusters, ...] sums of values [n, ...] over the rows of each cluster [n]."""
    sums = np.zeros((n_clusters, *values.shape[1:]))
    np.add.at(sums, cluster, values)
    return sums


def kish(weights: npt.ArrayLike) -> float:
    """Effective sample size (sum w)^2 / sum w^2 of weights [n] (Kish 1965); NaN where all are 0."""
    w = np.asarray(weights, np.float64)
    squares = float((w * w).sum())
    return float(w.sum()) ** 2 / squares if squares else math.nan


def _ratio_of_sums(A: Float64, B: Float64, C: Int64) -> tuple[Float64, Float64]:
    """Ratio [...] of A to B [Q, ...] and its standard error, over C clusters with weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        total = B.sum(axis=0)
        R = A.sum(axis=0) / total
        residuals = ((A - R * B) ** 2).sum(axis=0)
        variance = residuals * C / np.where(C > 1, C - 1, np.nan)
        return R, np.sqrt(variance) / np.abs(total)


def clusters(trajectories: Trajectories) -> tuple[Int64, Int64]:
    """Cluster number of each trajectory [B], and the task of each cluster [Q], rising."""
    tasks = trajectories.tasks
    if (tasks[1:] >= tasks[:-1]).all():  # as data mostly are: nothing to sort
        new = np.concatenate([[True], tasks[1:] != tasks[:-1]])[: len(tasks)]
        return np.cumsum(new) - 1, tasks[new].astype(np.int64)
    tasks, cluster = np.unique(tasks, return_inverse=True)
    return cluster.astype(np.int64), tasks.astype(np.int64)


def sum_by(group: Int64, values: Float64, n_groups: int) -> Float64:
    """[n_groups] sums of values by group, in blocks so that rounding stays that of one block."""
    block = max(1 << 16, n_groups)
    total = Total(n_groups)
    for begin in range(0, len(values), block):
        span = slice(begin, begin + block)
        total.add(np.bincount(group[span], values[span], minlength=n_groups).astype(np.float64))
    return total.value


def require_weight(total: float, trajectories: Trajectories) -> None:
    """Refuse a batch without any weight."""
    if not total > 0:
        raise DataError(
            f"no context has weight: {len(trajectories)} trajectories, {trajectories.n_empty} of them empty, "
            f"{trajectories.n_turns} turns; expected a positive weight somewhere (weights, psi, p_phi)"
        )
