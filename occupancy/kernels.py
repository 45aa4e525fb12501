"""Serial numba kernels for sums: arrays in, arrays of the caller out, input trusted, no Python object inside.

They release the GIL, so a thread pool may run them side by side on parts of a batch: `offsets` is then a part
of the batch's offsets and indexes the whole `states` and `turn`. An empty `factor` or `turn` stands for
ones. State ids are read as unsigned, which spares the check for negative indices. `occupancy.small` has the
same functions in numpy, bit for bit.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np

from occupancy.compiled import compiled
from occupancy.fixed_point import LOW_BITS, ONE, reciprocals
from occupancy.types import Float32, Float64, Floats, Int32, Int64

HIGH, LOW = reciprocals(np.arange(256))


@compiled
def tally(offsets: Int64, states: Int32, table: Int64) -> None:
    """Adds 1 and the two words of 1/T to the turn's state, side by side for the cache: table [S, 3]."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        if HIGH.size > T:
            high, low = HIGH[T], LOW[T]
        else:
            high = ONE // T
            low = ((ONE - high * T) << LOW_BITS) // T
        for i in range(offsets[b], offsets[b + 1]):
            s = np.uint32(states[i])
            table[s, 0] += 1
            table[s, 1] += high
            table[s, 2] += low


@compiled
def count_states(states: Int32, counts: Int64) -> None:
    """Adds every turn to its state: counts [S]."""
    for i in range(states.size):
        counts[np.uint32(states[i])] += 1


@compiled
def sum_states(
    offsets: Int64, states: Int32, factor: Float64, turn: Floats, blocks: Int64, sums: Float64
) -> None:
    """Adds factor[b] * turn[i] to the turn's state: sums [S].

    A block of trajectories is summed by itself and then added with its rounding error carried.
    """
    table, lost = np.zeros(sums.size), np.zeros(sums.size)
    for k in range(blocks.size - 1):
        table[:] = 0.0
        if factor.size == 0:
            for i in range(offsets[blocks[k]], offsets[blocks[k + 1]]):
                table[np.uint32(states[i])] += np.float64(turn[i])
        else:
            for b in range(blocks[k], blocks[k + 1]):
                scale = factor[b]
                if turn.size:
                    for i in range(offsets[b], offsets[b + 1]):
                        table[np.uint32(states[i])] += scale * np.float64(turn[i])
                else:
                    for i in range(offsets[b], offsets[b + 1]):
                        table[np.uint32(states[i])] += scale
        for s in range(sums.size):
            total = sums[s] + table[s]
            carried = total - sums[s]
            lost[s] += (sums[s] - (total - carried)) + (table[s] - carried)
            sums[s] = total
    for s in range(sums.size):
        sums[s] += lost[s]


@compiled
def sum_trajectories(
    offsets: Int64, values: Float32, factor: Float64, turn: Floats, A: Float64, B: Float64
) -> None:
    """Sums of w f and w of each trajectory: values [N, D], A [b, D], B [b]."""
    for b in range(offsets.size - 1):
        scale = factor[b] if factor.size else 1.0
        for d in range(values.shape[1]):
            part, total = 0.0, 0.0
            for i in range(offsets[b], offsets[b + 1]):
                w = scale * np.float64(turn[i]) if turn.size else scale
                part += w * np.float64(values[i, d])
                total += w
            A[b, d], B[b] = part, total


@compiled
def spread_states(
    offsets: Int64,
    states: Int32,
    order: Int64,
    cluster: Int64,
    factor: Float64,
    turn: Floats,
    ratio: Float64,
    residuals: Float64,
    visited: Float64,
) -> tuple[float, int]:
    """Over clusters q: residuals [S] sum (A_q - ratio B_q)^2, visited [S] sum B_q^2 where q visits the state.

    A_q is the weight of q in the state, B_q in all. `order` lists trajectories so that those of a cluster
    stand together. Returns the sum of B_q^2 and the number of clusters with weight.
    """
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
            residual = sums[s] - ratio[s] * B_q
            residuals[s] += residual * residual
            visited[s] += B_q * B_q
    return all_squares, n_clusters
