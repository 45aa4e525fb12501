"""Weights that convert a sample of contexts from one convention to another.

Algorithm 1 keeps one context a rollout. Under Unif{1..T} its law is trajectory-uniform, and weighting it by
T makes its averages pooled ones. The weights are between 1 and T_max; the effective sample size (Kish) is the
number of equally weighted contexts with the same variance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from occupancy.record.errors import DataError, InputError, one_of
from occupancy.record.types import Float64, Int64
from occupancy.statistics.clusters import kish
from occupancy.statistics.conventions import EXACT


@dataclass(frozen=True)
class Conversion:
    """Weights of a sample."""

    weights: Float64
    """[n] with mean 1."""
    ess: float
    """Effective sample size (Kish), at most n."""


def convert(lengths: npt.ArrayLike, tasks: npt.ArrayLike, *, source: str, target: str) -> Conversion:
    """Weights v = w_target / w_source of a sample of n contexts.

    E[T | q] is estimated from the sample: by the mean of T under `trajectory`, and by its harmonic mean
    under `pooled`, where trajectories are drawn in proportion to T.

    Args:
        lengths: [n] T of the trajectory of each context, in turns.
        tasks: [n] task of each context.
        source: Convention that the sample was drawn under: pooled, trajectory, or task (for task only).
        target: Convention to convert to: pooled, trajectory or task.

    Raises:
        DataError: The shapes differ, or a length is below 1.
        InputError: A convention is unknown, or `task` is the source: the sample does not determine E[T | q].
    """
    T, q = np.asarray(lengths), np.asarray(tasks)
    if T.ndim != 1 or T.shape != q.shape:
        raise DataError(f"lengths {T.shape} and tasks {q.shape}: expected two vectors of one length")
    if len(T) == 0 or T.min() < 1:
        raise DataError("a sampled context comes from a trajectory of length 0: expected T >= 1 in every row")
    one_of(EXACT, source=source, target=target)
    if source == "task" and target != "task":
        raise InputError("source='task' does not tell E[T | q]: draw the sample under 'trajectory'")
    T = T.astype(np.float64)
    weight = {"pooled": np.ones(len(T)), "trajectory": 1 / T}
    if target != "task":
        v = weight[target] / weight[source]
    elif source == "task":
        v = np.ones(len(T))
    else:
        v = 1 / (_mean_length(T, q, source) * weight[source])
    v /= v.mean()
    return Conversion(v, kish(v))


def _mean_length(T: Float64, tasks: Int64, source: str) -> Float64:
    """[n] E[T | q] of each row's task."""
    _, at = np.unique(tasks, return_inverse=True)
    if source == "trajectory":
        return (np.bincount(at, T) / np.bincount(at))[at]
    return (np.bincount(at) / np.bincount(at, 1 / T))[at]
