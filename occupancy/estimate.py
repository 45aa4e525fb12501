"""Occupancies and means of a batch under a stated convention, with standard errors clustered by task.

The estimate is a ratio of sums over tasks, R = sum_q A_q / sum_q B_q with B_q the weight of task q, and its
variance is the delta method's C/(C-1) sum_q (A_q - R B_q)^2 / (sum_q B_q)^2 over the C tasks with weight
(Cochran, Sampling Techniques, 1977, section 6.3). A single task says nothing about other tasks: the
standard error is then None.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.conventions import ContextWeights, context_weights
from occupancy.errors import DataError
from occupancy.types import Float64, Int64, Trajectories

_ONES: Float64 = np.empty(0)


@dataclass(frozen=True)
class Occupancy:
    """Share of each state among the weighted contexts."""

    probability: Float64
    """[S] sums to 1."""
    standard_error: Float64 | None
    """[S] clustered by task; None with a single task."""
    n_tasks: int
    """Tasks with weight: the clusters of the standard error."""
    n_trajectories: int
    """B, empty ones included."""
    n_empty: int
    """Trajectories without a turn: outside every sum and normaliser."""
    ess: float
    """Kish effective number of contexts, (sum w)^2 / sum w^2, as if turns were independent."""
    convention: str


@dataclass(frozen=True)
class Mean:
    """Weighted mean of the features over contexts; the other fields as in `Occupancy`."""

    value: Float64
    """[D], or no axis where features have none."""
    standard_error: Float64 | None
    """Shape of `value`; None with a single task."""
    n_tasks: int
    n_trajectories: int
    n_empty: int
    ess: float
    convention: str


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


def occupancy(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
) -> Occupancy:
    """d^w(s) for every state s, with `convention` one of pooled, trajectory, task, weights.

    psi [B] in {0, 1} and p_phi [N] in [0, 1] give the law that filters leave; see `context_weights`.
    Raises DataError where no context has weight.
    """
    from occupancy import kernels

    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    factor, turn = _columns(weights)
    offsets, states, S = trajectories.offsets, trajectories.states, trajectories.n_states
    if weights.trajectory is None and weights.turn is None:
        counts = np.zeros(S, np.int64)
        kernels.count_states(states, counts)
        sums, total, squares = counts.astype(np.float64), float(len(states)), float(len(states))
    else:
        sums = np.zeros(S)
        _, squares = kernels.sum_states(offsets, states, factor, turn, sums)
        total = float(sums.sum())
    _require_weight(total, trajectories)
    probability = sums / total
    cluster, _ = _clusters(trajectories)
    residuals = np.zeros(S)
    n_tasks = kernels.spread_states(
        offsets, states, np.argsort(cluster, kind="stable"), cluster, factor, turn, probability, residuals
    )
    return Occupancy(
        probability,
        np.sqrt(residuals * n_tasks / (n_tasks - 1)) / total if n_tasks > 1 else None,
        n_tasks,
        len(trajectories),
        trajectories.n_empty,
        total**2 / squares,
        convention,
    )


def mean(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
) -> Mean:
    """Weighted mean of the batch's features over contexts; arguments and errors as in `occupancy`."""
    sums = cluster_sums(trajectories, convention=convention, psi=psi, p_phi=p_phi)
    total = float(sums.denominators.sum())
    value, error = ratio(sums)
    features = trajectories.features
    shape = () if features is None else features.shape[1:]
    return Mean(
        value.reshape(shape),
        None if error is None else error.reshape(shape),
        int((sums.denominators > 0).sum()),
        len(trajectories),
        trajectories.n_empty,
        total**2 / sums.weight_squares,
        convention,
    )


def cluster_sums(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
) -> ClusterSums:
    """Sums of w f and of w by task, f the batch's features; arguments and errors as in `occupancy`."""
    from occupancy import kernels

    if trajectories.features is None:
        raise DataError("a mean of a batch without features: give Trajectories(features=...)")
    values = trajectories.features.reshape(trajectories.n_turns, -1)
    if not np.isfinite(values).all():
        at = int(np.argmax(~np.isfinite(values).all(axis=1)))
        raise DataError(f"features of turn {at} are {values[at].tolist()}: expected finite numbers")
    factor, turn = _columns(context_weights(trajectories, convention, psi=psi, p_phi=p_phi))
    cluster, tasks = _clusters(trajectories)
    numerators, denominators = np.zeros((len(tasks), values.shape[1])), np.zeros(len(tasks))
    squares = kernels.sum_clusters(
        trajectories.offsets, cluster, values, factor, turn, numerators, denominators
    )
    _require_weight(float(denominators.sum()), trajectories)
    return ClusterSums(numerators, denominators, tasks, squares)


def ratio(sums: ClusterSums) -> tuple[Float64, Float64 | None]:
    """R [D] and its standard error [D] by the delta method, None with a single cluster of weight."""
    A, B = sums.numerators, sums.denominators
    R = A.sum(axis=0) / B.sum()
    C = int((B > 0).sum())
    if C < 2:
        return R, None
    residuals = ((A - R * B[:, None]) ** 2).sum(axis=0)
    return R, np.sqrt(residuals * C / (C - 1)) / B.sum()


def _columns(weights: ContextWeights) -> tuple[Float64, npt.NDArray[np.floating]]:
    """The two factors as kernels read them: an empty array stands for ones."""
    return (
        _ONES if weights.trajectory is None else weights.trajectory,
        _ONES if weights.turn is None else weights.turn,
    )


def _clusters(trajectories: Trajectories) -> tuple[Int64, Int64]:
    """Cluster number of each trajectory [B], and the task of each cluster [Q]."""
    tasks, cluster = np.unique(trajectories.tasks, return_inverse=True)
    return cluster.astype(np.int64), tasks.astype(np.int64)


def _require_weight(total: float, trajectories: Trajectories) -> None:
    if not total > 0:
        raise DataError(
            f"no context has weight: {len(trajectories)} trajectories, {trajectories.n_empty} of them empty, "
            f"{trajectories.n_turns} turns; expected a positive weight somewhere (weights, psi, p_phi)"
        )
