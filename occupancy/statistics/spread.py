"""Sums over tasks of the squared residuals that standard errors by state are made of.

The sum is sum_q (A_q - R B_q)^2 of each state, A_q being the weight of task q in the state, B_q in all, and
R = sum A / sum B. Tasks come in the order of their ids, in chunks that depend on the data alone.
"""

# ruff: noqa: PLR0917 - the columns of kernels
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from occupancy.kernels.backend import kernels_for
from occupancy.kernels.chunks import Total, chunk_turns, cuts, in_order
from occupancy.record.types import Float64, Floats, Int64, Trajectories
from occupancy.statistics.clusters import clusters


def residuals_of_weights(
    trajectories: Trajectories, factor: Float64, turn: Floats, ratio: Float64, workers: int | None
) -> tuple[Float64, int]:
    """Sum [S] and the number of tasks with weight, for the columns of `ContextWeights`."""
    kernel = kernels_for(trajectories.n_turns).spread_states
    return _over_tasks(trajectories, kernel, (factor, turn), ratio, workers)


def residuals_of_words(
    trajectories: Trajectories,
    high: Int64,
    low: Int64,
    mass: Float64,
    ratio: Float64,
    workers: int | None,
) -> tuple[Float64, int]:
    """The same for weights in words [B], see `occupancy.kernels.fixed_point`, and B_q = mass [Q]."""
    kernel = kernels_for(trajectories.n_turns).spread_words
    return _over_tasks(trajectories, kernel, (high, low, mass), ratio, workers)


def residuals_of_cells(
    A: Float64, state: Int64, sizes: Int64, mass: Float64, turns: Int64, ratio: Float64
) -> tuple[Float64, int]:
    """The same, bit for bit, from A and state by cell, of which task q has sizes[q]; turns by task."""
    S = len(ratio)
    total = Total((2, S + 1))
    chunks = cuts(np.concatenate([[0], np.cumsum(turns)]), chunk_turns(S))
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for begin, end in zip(chunks[:-1].tolist(), chunks[1:].tolist(), strict=True):
        cells = slice(int(edges[begin]), int(edges[end]))
        s, B = state[cells], np.repeat(mass[begin:end], sizes[begin:end])
        residual = A[cells] - ratio[s] * B
        sums = np.zeros((2, S + 1))
        sums[0, :S] = np.bincount(s, residual * residual, minlength=S)
        sums[1, :S] = np.bincount(s, B * B, minlength=S)
        sums[:, S] = np.cumsum(np.square(mass[begin:end]))[-1], (mass[begin:end] > 0).sum()
        total.add(sums)
    return _finished(total, ratio)


def standard_errors(residuals: Float64, n_tasks: int, total: float) -> Float64 | None:
    """[S] by the delta method; None with a single task."""
    return np.sqrt(residuals * n_tasks / (n_tasks - 1)) / total if n_tasks > 1 else None


def _over_tasks(
    trajectories: Trajectories,
    kernel: Callable[..., Any],
    weights: tuple[Any, ...],
    ratio: Float64,
    workers: int | None,
) -> tuple[Float64, int]:
    S = trajectories.n_states
    cluster, _ = clusters(trajectories)
    order = np.argsort(cluster, kind="stable")
    begins = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    before = np.concatenate([[0], np.cumsum(trajectories.lengths[order])])
    edges = np.append(begins, len(order))

    def part(begin: int, end: int) -> Float64:
        sums = np.zeros((2, S + 1))
        chosen = order[edges[begin] : edges[end]]
        columns = (trajectories.offsets, trajectories.states, chosen, cluster, *weights, ratio)
        sums[:, S] = kernel(*columns, sums[0, :S], sums[1, :S])
        return sums

    total = Total((2, S + 1))
    for sums in in_order(part, cuts(before[edges], chunk_turns(S)), workers=workers):
        total.add(sums)
    return _finished(total, ratio)


def _finished(total: Total, ratio: Float64) -> tuple[Float64, int]:
    """A task that never visits the state has A_q = 0: R^2 times what is left of sum B_q^2."""
    S = len(ratio)
    (residuals, visited), (all_squares, n_tasks) = total.value[:, :S], total.value[:, S]
    return residuals + ratio**2 * np.maximum(all_squares - visited, 0.0), int(n_tasks)
