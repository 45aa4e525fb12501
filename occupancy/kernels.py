"""Serial numba kernels: arrays in, arrays of the caller out, input trusted, no Python object inside.

They release the GIL, so a thread pool may run them side by side on parts of a batch.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np
from numba import njit

from occupancy.types import Float32, Float64, Int32, Int64

compiled = njit(cache=True, nogil=True)


@compiled
def count_states(states: Int32, counts: Int64) -> None:
    """Adds every turn to its state: counts [S]."""
    for i in range(states.size):
        counts[states[i]] += 1


@compiled
def sum_states(
    offsets: Int64, states: Int32, factor: Float64, turn: Float64, sums: Float64
) -> tuple[float, float]:
    """Adds factor[b] * turn[i] to the turn's state: sums [S]; returns the sums of weights and their squares.

    An empty `factor` or `turn` stands for ones.
    """
    total, squares = 0.0, 0.0
    for b in range(offsets.size - 1):
        scale = factor[b] if factor.size else 1.0
        for i in range(offsets[b], offsets[b + 1]):
            w = scale * np.float64(turn[i]) if turn.size else scale
            sums[states[i]] += w
            total += w
            squares += w * w
    return total, squares


@compiled
def sum_clusters(
    offsets: Int64,
    cluster: Int64,
    values: Float32,
    factor: Float64,
    turn: Float64,
    numerators: Float64,
    denominators: Float64,
) -> float:
    """Sums of w f and w by cluster: values [N, D], numerators [Q, D], denominators [Q]; returns sum w^2."""
    squares = 0.0
    for b in range(offsets.size - 1):
        q = cluster[b]
        scale = factor[b] if factor.size else 1.0
        for i in range(offsets[b], offsets[b + 1]):
            w = scale * np.float64(turn[i]) if turn.size else scale
            squares += w * w
            denominators[q] += w
            for d in range(values.shape[1]):
                numerators[q, d] += w * np.float64(values[i, d])
    return squares


@compiled
def spread_states(
    offsets: Int64,
    states: Int32,
    order: Int64,
    cluster: Int64,
    factor: Float64,
    turn: Float64,
    ratio: Float64,
    residuals: Float64,
) -> int:
    """residuals [S]: sum over clusters q of (A_q - ratio B_q)^2, A_q q's weight in the state, B_q in all.

    `order` [B] lists trajectories so that each cluster's stand together. Returns the number of clusters
    with weight. The sum over clusters that never visit a state is ratio^2 times what is left of sum B_q^2.
    """
    visited = np.zeros(ratio.size)
    sums = np.zeros(ratio.size)
    mark = np.full(ratio.size, -1, np.int64)
    touched = np.empty(ratio.size, np.int64)
    all_squares, n_clusters, k = 0.0, 0, 0
    while k < order.size:
        q, n_touched, B_q = cluster[order[k]], 0, 0.0
        while k < order.size and cluster[order[k]] == q:
            b = order[k]
            scale = factor[b] if factor.size else 1.0
            for i in range(offsets[b], offsets[b + 1]):
                w = scale * np.float64(turn[i]) if turn.size else scale
                s = states[i]
                if mark[s] != q:
                    mark[s] = q
                    sums[s] = 0.0
                    touched[n_touched] = s
                    n_touched += 1
                sums[s] += w
                B_q += w
            k += 1
        n_clusters += B_q > 0.0
        all_squares += B_q * B_q
        for j in range(n_touched):
            s = touched[j]
            residuals[s] += (sums[s] - ratio[s] * B_q) ** 2
            visited[s] += B_q * B_q
    for s in range(ratio.size):
        residuals[s] += ratio[s] ** 2 * max(all_squares - visited[s], 0.0)
    return n_clusters
