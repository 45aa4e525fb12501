"""Occupancies and means of a batch under a stated convention, with standard errors clustered by task."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from occupancy.backend import kernels_for
from occupancy.chunks import Total, block_turns, chunk_turns, cuts, in_order
from occupancy.clusters import cluster_sums, clusters, ratio, require_weight
from occupancy.conventions import context_weights
from occupancy.tallies import tally
from occupancy.types import Float64, Floats, Int64, Trajectories


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


def occupancy(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
) -> Occupancy:
    """d^w(s) for every state s, with `convention` one of pooled, trajectory, task, weights.

    psi [B] in {0, 1} and p_phi [N] in [0, 1] give the law that filters leave; see `context_weights`.
    The result has the same bits for any number of `workers`. Raises DataError where no context has weight.
    """
    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    if psi is None and weights.trajectory is not None:
        used = weights.trajectory[trajectories.lengths > 0]
        if used.size and used.min() == used.max():  # it cancels, and without it the sums are counts
            weights = replace(weights, trajectory=None)
    factor, turn = weights.columns
    if convention == "trajectory" and factor.size and psi is None and p_phi is None:
        sums = tally(trajectories, workers=workers).inverse_lengths
    elif factor.size or turn.size:
        sums = weighted_sums(trajectories, factor, turn, workers)
    else:
        sums = _counts(trajectories, workers)
    total = float(sums.sum())
    require_weight(total, trajectories)
    residuals, n_tasks = _residuals(trajectories, factor, turn, sums / total, workers)
    return Occupancy(
        sums / total,
        np.sqrt(residuals * n_tasks / (n_tasks - 1)) / total if n_tasks > 1 else None,
        n_tasks,
        len(trajectories),
        trajectories.n_empty,
        total**2 / weights.squares(trajectories.lengths),
        convention,
    )


def mean(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
) -> Mean:
    """Weighted mean of the batch's features over contexts; arguments and errors as in `occupancy`."""
    sums = cluster_sums(trajectories, convention=convention, psi=psi, p_phi=p_phi, workers=workers)
    found = ratio(sums)
    shape = () if trajectories.features is None else trajectories.features.shape[1:]
    return Mean(
        found.value.reshape(shape),
        None if found.standard_error is None else found.standard_error.reshape(shape),
        sums.n_weighted,
        len(trajectories),
        trajectories.n_empty,
        float(sums.denominators.sum()) ** 2 / sums.weight_squares,
        convention,
    )


def _counts(trajectories: Trajectories, workers: int | None) -> Float64:
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    offsets = trajectories.offsets

    def part(begin: int, end: int) -> Int64:
        counts = np.zeros(S, np.int64)
        kernels.count_states(trajectories.states[offsets[begin] : offsets[end]], counts)
        return counts

    total = np.zeros(S, np.int64)
    for counts in in_order(part, cuts(offsets, chunk_turns(S)), workers=workers):
        total += counts
    return total.astype(np.float64)


def weighted_sums(
    trajectories: Trajectories, factor: Float64, turn: Floats, workers: int | None = None
) -> Float64:
    """Weight of each state [S] from the columns of `ContextWeights`, of which one at least is not empty."""
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    offsets = trajectories.offsets

    def part(begin: int, end: int) -> Float64:
        sums, here = np.zeros(S), offsets[begin : end + 1]
        blocks = cuts(here - here[0], block_turns(S))
        kernels.sum_states(here, trajectories.states, factor[begin:end], turn, blocks, sums)
        return sums

    total = Total(S)
    for sums in in_order(part, cuts(offsets, chunk_turns(S)), workers=workers):
        total.add(sums)
    return total.value


def _residuals(
    trajectories: Trajectories, factor: Float64, turn: Floats, ratio: Float64, workers: int | None
) -> tuple[Float64, int]:
    """sum_q (A_q - R B_q)^2 of each state [S], and the number of tasks with weight.

    A task that never visits the state has A_q = 0: their share is R^2 times what is left of sum B_q^2.
    """
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    cluster, _ = clusters(trajectories)
    order = np.argsort(cluster, kind="stable")
    begins = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    before = np.concatenate([[0], np.cumsum(trajectories.lengths[order])])
    edges = np.append(begins, len(order))

    def part(begin: int, end: int) -> Float64:
        sums = np.zeros((2, S + 1))
        chosen = order[edges[begin] : edges[end]]
        columns = (trajectories.offsets, trajectories.states, chosen, cluster, factor, turn, ratio)
        sums[:, S] = kernels.spread_states(*columns, sums[0, :S], sums[1, :S])
        return sums

    total = Total((2, S + 1))
    for sums in in_order(part, cuts(before[edges], chunk_turns(S)), workers=workers):
        total.add(sums)
    (residuals, visited), (all_squares, n_tasks) = total.value[:, :S], total.value[:, S]
    return residuals + ratio**2 * np.maximum(all_squares - visited, 0.0), int(n_tasks)
