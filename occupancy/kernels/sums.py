"""Serial numba kernels for sums: arrays in, arrays of the caller out, input trusted, no Python object inside.

They release the GIL, so a thread pool may run them side by side on parts of a batch: `offsets` is then a part
of the batch's offsets and indexes the whole `states` and `turn`. State ids are read as unsigned, which avoids
the check for negative indices. `small` has most of them in numpy, with the same bits.
"""

from __future__ import annotations

import numpy as np

from occupancy.kernels.columns import Groups, Spread, Totals, Turns, Weights, Words
from occupancy.kernels.compiled import compiled
from occupancy.kernels.fixed_point import LOW_BITS, ONE, reciprocals
from occupancy.record.types import Float64, Floats, Int32, Int64

HIGH, LOW = reciprocals(np.arange(256))

SHORT, BUFFER = 64, 1 << 12
PAIRED_STATES = 1 << 15
COUNT_BIT, LOW_SHORT = 43, 23
HELD = (1 << (63 - COUNT_BIT)) - 1
"""Turns that a pair of words can hold: a count above COUNT_BIT, and sums of 1/T in units of 2**-63 that are
cut at LOW_SHORT bits, not at 32."""
_UNITS = [(1 << 63) // max(T, 1) for T in range(SHORT + 1)]
PAIR_HIGH = np.array([units >> LOW_SHORT for units in _UNITS])
PAIR_LOW = np.array([(units & ((1 << LOW_SHORT) - 1)) | (1 << COUNT_BIT) for units in _UNITS])


@compiled
def tally(turns: Turns, table: Int64) -> None:
    """Adds 1 and the two words of 1/T to the turn's state: table [S, 3].

    What costs is guessing where a trajectory ends. Lengths up to SHORT are therefore written out by turn
    first, always SHORT times, the next one over the rest: then no branch depends on them. Counts ride on
    the lower word, so that a turn adds to two words that lie together.
    """
    offsets, states = turns
    pairs = np.zeros((table.shape[0] if table.shape[0] <= PAIRED_STATES else 0, 2), np.int64)
    lengths = np.empty(BUFFER + SHORT, np.uint8)
    k, held = 0, 0
    while k < offsets.size - 1:
        base, last = offsets[k], k
        while last < offsets.size - 1 and pairs.size:
            T = offsets[last + 1] - offsets[last]
            if T > SHORT or offsets[last + 1] - base > BUFFER:
                break
            at = np.uint64(offsets[last] - base)
            for j in range(np.uint64(SHORT)):
                lengths[at + np.uint64(j)] = np.uint8(T)
            last += 1
        if last == k:
            _tally_one(offsets[k], offsets[k + 1], states, table)
            k += 1
            continue
        n = offsets[last] - base
        if held + n > HELD:
            _unpack(pairs, table)
            held = 0
        begin = np.uint64(base)
        for i in range(np.uint64(n)):
            s, length = np.uint32(states[begin + np.uint64(i)]), lengths[i]
            pairs[s, 0] += PAIR_HIGH[length]
            pairs[s, 1] += PAIR_LOW[length]
        held += n
        k = last
    _unpack(pairs, table)


@compiled
def _tally_one(begin: int, end: int, states: Int32, table: Int64) -> None:
    high, low = _words(end - begin)
    for i in range(begin, end):
        s = np.uint32(states[i])
        table[s, 0] += 1
        table[s, 1] += high
        table[s, 2] += low


@compiled
def _words(T: int) -> tuple[int, int]:
    """1/T in words, T > 0."""
    if HIGH.size > T:
        return HIGH[T], LOW[T]
    high = ONE // T
    return high, ((ONE - high * T) << LOW_BITS) // T


@compiled
def tally_turns(states: Int32, T: Int64, table: Int64) -> None:
    """`tally` where every turn has the length of its trajectory beside it."""
    for i in range(states.size):
        s = np.uint32(states[i])
        high, low = _words(T[i])
        table[s, 0] += 1
        table[s, 1] += high
        table[s, 2] += low


@compiled
def _unpack(pairs: Int64, table: Int64) -> None:
    """Adds pairs of words to counts and words of 1/T, and clears them."""
    spare = LOW_BITS - LOW_SHORT
    for s in range(pairs.shape[0]):
        high, low = pairs[s, 0], pairs[s, 1]
        table[s, 0] += low >> COUNT_BIT
        table[s, 1] += high >> spare
        table[s, 2] += ((high & ((1 << spare) - 1)) << LOW_SHORT) + (low & ((1 << COUNT_BIT) - 1))
        pairs[s, 0], pairs[s, 1] = 0, 0


@compiled
def count_states(states: Int32, counts: Int64) -> None:
    """Adds every turn to its state: counts [S]. Bytes stay in the first cache; every 256th turn carries."""
    narrow = np.zeros(counts.size, np.uint8)
    for i in range(np.uint64(states.size)):
        s = np.uint32(states[i])
        count = (np.int64(narrow[s]) + 1) & 255
        narrow[s] = np.uint8(count)
        if count == 0:
            counts[s] += 256
    for rest in range(counts.size):
        counts[rest] += narrow[rest]


@compiled
def sum_states(turns: Turns, weights: Weights, blocks: Int64, sums: Float64) -> None:
    """Adds the weight of each turn to its state: sums [S].

    A block of trajectories is summed by itself and then added with its rounding error carried.
    """
    offsets, states = turns
    factor, turn = weights
    table, lost = np.zeros(sums.size), np.zeros(sums.size)
    for k in range(blocks.size - 1):
        table[:] = 0.0
        if factor.size == 0:
            for i in range(np.uint64(offsets[blocks[k]]), np.uint64(offsets[blocks[k + 1]])):
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
def sum_trajectories(offsets: Int64, values: Floats, weights: Weights, A: Float64, B: Float64) -> None:
    """Sums of w f and w of each trajectory: values [N, D], A [b, D], B [b]."""
    factor, turn = weights
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
    turns: Turns, groups: Groups, weights: Weights, ratio: Float64, out: Spread
) -> tuple[float, int]:
    """Over clusters q: residuals [S] sum (A_q - ratio B_q)^2, visited [S] sum B_q^2 where q visits the state.

    A_q is the weight of q in the state, B_q in all. `order` lists trajectories so that those of a cluster
    stand together. Returns the sum of B_q^2 and the number of clusters with weight.
    """
    offsets, states = turns
    order, cluster = groups
    factor, turn = weights
    residuals, visited = out
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


@compiled
def sum_words(turns: Turns, words: Words, table: Int64) -> None:
    """Adds the two words of trajectory b to the turn's state: table [S, 2]."""
    offsets, states = turns
    high, low = words
    for b in range(offsets.size - 1):
        for i in range(offsets[b], offsets[b + 1]):
            s = np.uint32(states[i])
            table[s, 0] += high[b]
            table[s, 1] += low[b]


@compiled
def spread_words(
    turns: Turns, groups: Groups, words: Words, totals: Totals, out: Spread
) -> tuple[float, int]:
    """`spread_states` for weights in words, one a trajectory, and B_q = totals.mass[q]: sums do not round."""
    offsets, states = turns
    mass, ratio = totals
    order, cluster = groups
    high, low = words
    residuals, visited = out
    sums = np.zeros((ratio.size, 3), np.int64)  # the words, and one more than the cluster that they are of
    touched = np.empty(ratio.size, np.int32)
    all_squares, n_clusters, k = 0.0, 0, 0
    while k < order.size:
        q, n_touched = cluster[order[k]], 0
        B_q = mass[q]
        while k < order.size and cluster[order[k]] == q:
            b = order[k]
            upper, lower = high[b], low[b]
            for i in range(np.uint64(offsets[b]), np.uint64(offsets[b + 1])):
                s = np.uint32(states[i])
                if sums[s, 2] == q + 1:
                    sums[s, 0] += upper
                    sums[s, 1] += lower
                else:
                    sums[s, 0], sums[s, 1], sums[s, 2] = upper, lower, q + 1
                    touched[n_touched] = s
                    n_touched += 1
            k += 1
        n_clusters += B_q > 0.0
        all_squares += B_q * B_q
        for j in range(n_touched):
            s = np.uint32(touched[j])
            residual = (sums[s, 0] + sums[s, 1] * 2.0**-LOW_BITS) / ONE - ratio[s] * B_q
            residuals[s] += residual * residual
            visited[s] += B_q * B_q
    return all_squares, n_clusters
