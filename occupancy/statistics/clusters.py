"""Sums by task, the clusters of every standard error, and the ratio estimate that they give.

The estimate is R = sum_q A_q / sum_q B_q and its variance the delta method's
C/(C-1) sum_q (A_q - R B_q)^2 / (sum_q B_q)^2 over the C tasks with weight (Cochran, Sampling Techniques,
1977, section 6.3). A single task says nothing about other tasks: the standard error is then None.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.kernels.backend import kernels_for
from occupancy.kernels.chunks import Total, chunk_turns, cuts, in_order
from occupancy.record.errors import DataError
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.conventions import context_weights


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
    """[D] by the delta method; None with a single cluster of weight."""


def cluster_sums(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
) -> ClusterSums:
    """Sums of w f and of w by task, f the batch's features; arguments and errors as in `occupancy`."""
    sums = partial_sums(trajectories, convention=convention, psi=psi, p_phi=p_phi, workers=workers)
    require_weight(float(sums.denominators.sum()), trajectories)
    return sums


def partial_sums(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
) -> ClusterSums:
    """`cluster_sums` of a part of the data, which may have no weight."""
    values = trajectories.feature_rows
    if values is None:
        raise DataError("a mean of a batch without features: give Trajectories(features=...)")
    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    factor, turn = weights.columns
    offsets, kernels = trajectories.offsets, kernels_for(trajectories.n_turns)
    A, B = np.zeros((len(trajectories), values.shape[1])), np.zeros(len(trajectories))

    def part(begin: int, end: int) -> None:
        span = slice(begin, end)
        kernels.sum_trajectories(offsets[begin : end + 1], values, factor[span], turn, A[span], B[span])

    deque(in_order(part, cuts(offsets, chunk_turns(1)), workers=workers), maxlen=0)
    cluster, tasks = clusters(trajectories)
    numerators = np.stack([sum_by(cluster, column, len(tasks)) for column in A.T], axis=1)
    if not np.isfinite(numerators).all():
        bad = ~np.isfinite(values).all(axis=1)
        at = int(np.argmax(bad))
        raise DataError(f"features of turn {at} are {values[at].tolist()}: expected finite numbers")
    denominators = sum_by(cluster, B, len(tasks))
    return ClusterSums(numerators, denominators, tasks, weights.squares(trajectories.lengths))


def ratio(sums: ClusterSums, *, over: int | None = None) -> Ratio:
    """Mean of every feature over contexts, or its ratio to feature number `over`, with standard errors.

    Raises DataError where the feature to divide by sums to zero.
    """
    A = sums.numerators
    B = sums.denominators if over is None else A[:, over]
    if B.sum() == 0:
        raise DataError(f"feature {over} sums to zero over all contexts: nothing can be divided by it")
    R = A.sum(axis=0) / B.sum()
    C = sums.n_weighted
    if C < 2:
        return Ratio(R, None)
    residuals = ((A - R * B[:, None]) ** 2).sum(axis=0)
    return Ratio(R, np.sqrt(residuals * C / (C - 1)) / abs(B.sum()))


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
