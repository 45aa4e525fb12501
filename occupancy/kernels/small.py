"""The kernels of `occupancy.kernels.sums` in numpy, for batches that are done before numba is loaded.

Every sum adds the same numbers in the same order, so the results are equal bit for bit: bincount adds one
element after the other, and so does cumsum, where sum would not.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from occupancy.kernels.chunks import Total
from occupancy.kernels.columns import Groups, Spread, Totals, Turns, Weights, Words
from occupancy.kernels.fixed_point import LOW_BITS, ONE, reciprocals
from occupancy.record.types import Float64, Floats, Int32, Int64


def tally(turns: Turns, table: Int64) -> None:
    """Adds 1 and the two words of 1/T to the turn's state: table [S, 3]."""
    offsets, states = turns
    T = np.diff(offsets)
    here = states[offsets[0] : offsets[-1]]
    table[:, 0] += np.bincount(here, minlength=len(table))
    for column, words in enumerate(reciprocals(T), start=1):  # sums stay below 2**53: floats hold them
        table[:, column] += np.bincount(here, np.repeat(words, T), minlength=len(table)).astype(np.int64)


def count_states(states: Int32, counts: Int64) -> None:
    """Adds every turn to its state: counts [S]."""
    counts += np.bincount(states, minlength=len(counts))


def sum_states(turns: Turns, weights: Weights, blocks: Int64, sums: Float64) -> None:
    """Adds the weight of each turn to its state: sums [S].

    A block of trajectories is summed by itself and then added with its rounding error carried.
    """
    offsets, states = turns
    w = _weights(offsets, weights)
    here = states[offsets[0] : offsets[-1]]
    total = Total(len(sums))
    total.sum[:] = sums
    for begin, end in pairwise((offsets[blocks] - offsets[0]).tolist()):
        total.add(np.bincount(here[begin:end], w[begin:end], minlength=len(sums)).astype(np.float64))
    sums[:] = total.value


def sum_trajectories(offsets: Int64, values: Floats, weights: Weights, A: Float64, B: Float64) -> None:
    """Sums of w f and w of each trajectory: values [N, D], A [b, D], B [b]."""
    w = _weights(offsets, weights)
    owner = np.repeat(np.arange(len(B)), np.diff(offsets))
    B[:] = np.bincount(owner, w, minlength=len(B))
    here = values[offsets[0] : offsets[-1]]
    for d in range(values.shape[1]):
        A[:, d] = np.bincount(owner, w * here[:, d].astype(np.float64), minlength=len(B))


def spread_states(
    turns: Turns, groups: Groups, weights: Weights, ratio: Float64, out: Spread
) -> tuple[float, int]:
    """Over clusters: residuals [S] sum (A_q - ratio B_q)^2, visited [S] sum B_q^2 of those in the state."""
    offsets, states = turns
    order, cluster = groups
    S = len(ratio)
    chosen = np.zeros(len(offsets) - 1, bool)
    chosen[order] = True
    rows = np.repeat(chosen, np.diff(offsets))
    numbers, rank = np.unique(np.where(chosen, cluster, -1), return_inverse=True)
    w = _weights(offsets, weights)[rows]
    owner = np.repeat(rank, np.diff(offsets))[rows]
    B = np.bincount(owner, w, minlength=len(numbers))[numbers >= 0]
    owner = owner - int((numbers < 0).any())
    pairs, cell = np.unique(owner * S + states[rows], return_inverse=True)
    q, s = pairs // S, pairs % S
    A = np.bincount(cell, w, minlength=len(pairs))
    residual = A - ratio[s] * B[q]
    out.residuals[:] += np.bincount(s, residual * residual, minlength=S)
    out.visited[:] += np.bincount(s, (B * B)[q], minlength=S)
    return float(np.cumsum(np.square(B))[-1]), int((B > 0).sum())


def sum_words(turns: Turns, words: Words, table: Int64) -> None:
    """Adds the two words of trajectory b to the turn's state: table [S, 2]."""
    offsets, states = turns
    T, here = np.diff(offsets), states[offsets[0] : offsets[-1]]
    for column, word in enumerate(words):  # sums stay below 2**53: floats hold them
        table[:, column] += np.bincount(here, np.repeat(word, T), minlength=len(table)).astype(np.int64)


def spread_words(
    turns: Turns, groups: Groups, words: Words, totals: Totals, out: Spread
) -> tuple[float, int]:
    """`spread_states` for weights in words, one a trajectory, and B_q = totals.mass[q]."""
    offsets, states = turns
    mass, ratio = totals
    order, cluster = groups
    S = len(ratio)
    chosen = np.zeros(len(offsets) - 1, bool)
    chosen[order] = True
    T = np.where(chosen, np.diff(offsets), 0)
    rows = np.repeat(chosen, np.diff(offsets))
    pairs, cell = np.unique(np.repeat(cluster * S, T) + states[rows], return_inverse=True)
    upper, lower = (np.bincount(cell, np.repeat(w, T), minlength=len(pairs)) for w in words)
    q, state = pairs // S, pairs % S
    residual = (upper + lower * 2.0**-LOW_BITS) / ONE - ratio[state] * mass[q]
    out.residuals[:] += np.bincount(state, residual * residual, minlength=S)
    out.visited[:] += np.bincount(state, np.square(mass[q]), minlength=S)
    B = mass[np.unique(cluster[order])]
    return float(np.cumsum(np.square(B))[-1]), int((B > 0).sum())


def _weights(offsets: Int64, weights: Weights) -> Float64:
    """Weight of each turn of a part."""
    factor, turn = weights
    T = np.diff(offsets)
    w = np.repeat(factor, T) if factor.size else np.ones(int(offsets[-1] - offsets[0]))
    return w * turn[offsets[0] : offsets[-1]].astype(np.float64) if turn.size else w
