"""The weight w_t(tau) Psi(tau) p_Phi(tau, t) of every turn, under each convention.

    pooled       w = 1: all contexts have equal weight
    trajectory   w = 1/T: all trajectories have equal weight
    task         w = 1/E[T | q]: all tasks have equal weight, as when every task is topped up to the same
                 number of accepted switches; estimated by 1 / (turns of the task in the batch)
    weights      w = Trajectories.weights

A weight is stored as a factor of the trajectory times a factor of the turn; most have only one of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from occupancy.kernels.columns import Weights
from occupancy.record.errors import DataError, one_of
from occupancy.record.types import Float64, Int64, Trajectories

EXACT = ("pooled", "trajectory", "task")
"""Conventions whose sums are whole numbers."""
CONVENTIONS = (*EXACT, "weights")
_ONES: Float64 = np.empty(0)


def context_weights(
    trajectories: Trajectories,
    convention: str,
    *,
    psi: npt.ArrayLike | None = None,
    p_phi: npt.ArrayLike | None = None,
) -> Weights:
    """Weights of every context of a batch.

    psi [B]: 1 where the prefix filter passes, else 0. p_phi [N]: probability that a continuation from the
    context passes Phi, in [0, 1] (the paper's appendix on filtered laws).
    """
    one_of(CONVENTIONS, convention=convention)
    factor: Float64 = _ONES
    turn = trajectories.weights if convention == "weights" else _ONES
    if turn is None:
        raise DataError(
            "convention 'weights' on a batch without weights: give Trajectories(weights=...), "
            "or use 'pooled', 'trajectory' or 'task'"
        )
    if convention == "trajectory":
        factor = _one_over(trajectories.lengths)
    elif convention == "task":
        factor = _one_over(_task_turns(trajectories))
    if psi is not None:
        passes = _filter("psi", psi, len(trajectories), "trajectories")
        if not np.isin(passes, (0, 1)).all():
            raise DataError(f"psi holds {passes[~np.isin(passes, (0, 1))][0]}: expected 0 or 1")
        factor = factor * passes if factor.size else passes
    if p_phi is not None:
        probability = _filter("p_phi", p_phi, trajectories.n_turns, "turns")
        turn = turn * probability if turn.size else probability
    return Weights(factor, turn)


def sum_of_squares(weights: Weights, lengths: Int64) -> float:
    """Sum of the squared weights of all turns, for an effective sample size."""
    factor = weights.factor if weights.factor.size else np.ones(len(lengths))
    if not weights.turn.size:
        return float((factor * factor * lengths).sum())
    w = weights.turn * np.repeat(factor, lengths) if weights.factor.size else weights.turn
    return float(np.einsum("i,i->", w, w, dtype=np.float64))


def _one_over(turns: npt.NDArray[np.int64]) -> Float64:
    """1 / turns, 0 where there is none."""
    return np.divide(1.0, turns, out=np.zeros(len(turns)), where=turns > 0)


def _task_turns(trajectories: Trajectories) -> npt.NDArray[np.int64]:
    """[B] turns of all trajectories that share the task."""
    _, cluster = np.unique(trajectories.tasks, return_inverse=True)
    totals = np.zeros(int(cluster.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, cluster, trajectories.lengths)
    return totals[cluster] * (trajectories.lengths > 0)


def _filter(name: str, values: npt.ArrayLike, length: int, axis: str) -> Float64:
    array = np.asarray(values)
    if array.shape != (length,):
        raise DataError(f"{name} has shape {array.shape} for {length} {axis}: expected one value for each")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} has type {array.dtype}: expected numbers")
    array = array.astype(np.float64)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"{name} holds {array[at]} at {at}: expected numbers from 0 to 1")
    return array
