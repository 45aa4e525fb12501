"""Occupancies and means of a batch under a stated convention, with standard errors clustered by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from occupancy.kernels.chunks import Total, block_turns, chunk_turns, cuts, in_order, kernels_for
from occupancy.kernels.columns import Turns, Weights
from occupancy.record.shows import Shown, Shows
from occupancy.record.types import Float64, Trajectories
from occupancy.statistics.clusters import cluster_sums, ratio, require_weight
from occupancy.statistics.conventions import EXACT, context_weights, sum_of_squares
from occupancy.statistics.exact import Occupancy, exact_occupancy
from occupancy.statistics.spread import residuals_of_turns, standard_errors

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Mean(Shows):
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

    def to_pandas(self) -> pd.DataFrame:
        """The features, a row each."""
        import pandas as pd

        error = None if self.standard_error is None else np.ravel(self.standard_error)
        return pd.DataFrame({"mean": np.ravel(self.value), "standard_error": error})

    def _shown(self) -> Shown:
        counts = f"{self.n_tasks:,} tasks, {self.n_trajectories:,} trajectories"
        return [f"{self.convention} mean over contexts; {counts}"], [self.to_pandas()]


def occupancy(
    trajectories: Trajectories,
    *,
    convention: str,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
    workers: int | None = None,
) -> Occupancy:
    """Occupancy d^w(s) of every state, with standard errors clustered by task.

    Args:
        trajectories: B trajectories with N turns.
        convention: Weight of a turn: pooled (1), trajectory (1/T), task (1 over the turns of its task) or
            weights (those of the batch).
        psi: [B] verdict of the prefix filter, 0 or 1.
        p_phi: [N] probability that a continuation passes Phi, in [0, 1]; the weight is multiplied by both.
        workers: Threads; by default one a processor. The result has the same bits for any number.

    Returns:
        Probability and standard error [S] with their counts.

    Raises:
        DataError: No context has weight, or psi or p_phi have the wrong shape or range.
        InputError: The convention is unknown.

    Example:
        >>> batch = Trajectories([0, 3, 5], [0, 1, 2, 0, 1], [0, 1])
        >>> occupancy(batch, convention="pooled").probability
        array([0.4, 0.4, 0.2])

    Source: the paper's appendix on filtered laws, for psi and p_phi.
    """
    if psi is None and p_phi is None and convention in EXACT:
        require_weight(trajectories.n_turns, trajectories)
        return exact_occupancy(trajectories, convention, workers)
    weights = context_weights(trajectories, convention, psi=psi, p_phi=p_phi)
    sums = weighted_sums(trajectories, weights, workers)
    total = float(sums.sum())
    require_weight(total, trajectories)
    share = sums / total
    residuals, n_tasks = residuals_of_turns(trajectories, "spread_states", (weights, share), share, workers)
    return Occupancy(
        share,
        standard_errors(residuals, n_tasks, total),
        n_tasks,
        len(trajectories),
        trajectories.n_empty,
        total**2 / sum_of_squares(weights, trajectories.lengths),
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
    """Weighted mean of the batch's features over contexts; errors as in `occupancy`.

    Args:
        trajectories: A batch with features; the other arguments are as in `occupancy`.

    Example:
        >>> batch = Trajectories([0, 3, 5], [0, 1, 2, 0, 1], [0, 1], features=[1, 0, 1, 1, 1])
        >>> float(mean(batch, convention="pooled").value)
        0.8
    """
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


def weighted_sums(trajectories: Trajectories, weights: Weights, workers: int | None = None) -> Float64:
    """[S] weight of each state; at least one of the two columns of weights is not empty."""
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    offsets = trajectories.offsets

    def work(begin: int, end: int) -> Float64:
        sums, here = np.zeros(S), offsets[begin : end + 1]
        blocks = cuts(here - here[0], block_turns(S))
        part = Weights(weights.factor[begin:end], weights.turn)
        kernels.sum_states(Turns(here, trajectories.states), part, blocks, sums)
        return sums

    total = Total(S)
    for sums in in_order(work, cuts(offsets, 4 * chunk_turns(S)), workers=workers):
        total.add(sums)
    return total.value
