"""Occupancies and means of a batch under a stated convention, with standard errors clustered by task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.kernels.backend import kernels_for
from occupancy.kernels.chunks import Total, block_turns, chunk_turns, cuts, in_order
from occupancy.record.types import Float64, Floats, Trajectories
from occupancy.statistics.clusters import cluster_sums, ratio, require_weight
from occupancy.statistics.conventions import context_weights
from occupancy.statistics.exact import EXACT, exact_shares
from occupancy.statistics.spread import residuals_of_weights, standard_errors


@dataclass(frozen=True)
class Occupancy:
    """Share of each state among the weighted contexts."""

    probability: Float64
    """[S] sums to 1."""
    standard_error: Float64 | None
    """[S] clustered by task; None with a single task, and where a table was read without."""
    n_tasks: int
    """Tasks with weight: the clusters of the standard error; 0 where a scan did not read them."""
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
    if psi is None and p_phi is None and convention in EXACT:
        require_weight(trajectories.n_turns, trajectories)
        found = exact_shares(trajectories, convention, workers)
        counts = (len(trajectories), trajectories.n_empty)
        return Occupancy(
            found.probability, found.standard_error, found.n_tasks, *counts, found.ess, convention
        )
    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    factor, turn = weights.columns
    sums = weighted_sums(trajectories, factor, turn, workers)
    total = float(sums.sum())
    require_weight(total, trajectories)
    residuals, n_tasks = residuals_of_weights(trajectories, factor, turn, sums / total, workers)
    return Occupancy(
        sums / total,
        standard_errors(residuals, n_tasks, total),
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
    for sums in in_order(part, cuts(offsets, 4 * chunk_turns(S)), workers=workers):
        total.add(sums)
    return total.value
