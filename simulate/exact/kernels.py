"""Serial numba kernels of the sampler: arrays in, arrays of the caller out, input trusted.

An alias table gives a state 2^m columns of two words: the odds of the column's first outcome in units of
2^-32, and both outcomes. One 64-bit draw picks the column by its upper bits and the outcome by its lower 32.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np

from occupancy.kernels.compiled import compiled
from simulate.exact.draws import GOLDEN, entry, mix
from simulate.worlds.types import Float64, Int64

UInt64 = np.ndarray
BLOCK = 256
_LOW = np.uint64(0xFFFF_FFFF)
_HALF = np.uint64(32)


@compiled
def alias_rows(outcomes: Int64, probs: Float64, table: UInt64) -> None:
    """Fill table [rows, columns, 2] from outcomes and probs [rows, n], n <= columns (Vose's method)."""
    rows, n = probs.shape
    columns = table.shape[1]
    scaled = np.empty(columns)
    names = np.empty(columns, np.uint64)
    small, large = np.empty(columns, np.int64), np.empty(columns, np.int64)
    for row in range(rows):
        smalls, larges = 0, 0
        for c in range(columns):
            scaled[c] = probs[row, c] * columns if c < n else 0.0
            names[c] = np.uint64(outcomes[row, c]) if c < n else np.uint64(outcomes[row, 0])
            if scaled[c] < 1.0:
                small[smalls] = c
                smalls += 1
            else:
                large[larges] = c
                larges += 1
        while smalls and larges:
            smalls -= 1
            low, high = small[smalls], large[larges - 1]
            table[row, low, 0] = np.uint64(scaled[low] * 4294967296.0)
            table[row, low, 1] = names[low] | (names[high] << _HALF)
            scaled[high] -= 1.0 - scaled[low]
            if scaled[high] < 1.0:
                larges -= 1
                small[smalls] = high
                smalls += 1
        # What is left differs from 1 by rounding only: it always takes its own outcome.
        while larges:
            larges -= 1
            table[row, large[larges], 0] = np.uint64(4294967296)
            table[row, large[larges], 1] = names[large[larges]] | (names[large[larges]] << _HALF)
        while smalls:
            smalls -= 1
            table[row, small[smalls], 0] = np.uint64(4294967296)
            table[row, small[smalls], 1] = names[small[smalls]] | (names[small[smalls]] << _HALF)


@compiled
def walk(
    first: UInt64,
    first_shift: int,
    table: UInt64,
    shift: int,
    keys: UInt64,
    begin: int,
    end: int,
    counts: np.ndarray,
    ends: Int64,
) -> None:
    """Play the trajectories begin .. end - 1 and count.

    `first` [1, columns, 2] draws the first state, `table` [S, columns, 2] the successor; `keys` [T + 1] are
    the streams of the draws. counts [T + 1, S] += visits by the length of the trajectory; ends [T + 1, 3] +=
    success, failure, horizon by length.
    """
    S, T = table.shape[0], keys.size - 1
    state, live = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    length, how = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    path = np.empty((BLOCK, T), np.int32)
    down, first_down = np.uint64(shift), np.uint64(first_shift)
    for block in range(begin, end, BLOCK):
        size = min(BLOCK, end - block)
        for i in range(size):
            bits = entry(keys[0], np.uint64(block + i))
            column = (bits >> _HALF) >> first_down
            pair = first[0, column, 1]
            state[i] = np.int64(pair & _LOW if (bits & _LOW) < first[0, column, 0] else pair >> _HALF)
            live[i] = i
        alive = size
        for t in range(T):
            key, still = keys[t + 1] + GOLDEN + GOLDEN * np.uint64(block), 0
            for j in range(alive):
                i = live[j]
                s = state[i]
                path[i, t] = s
                bits = mix(key + GOLDEN * np.uint64(i))
                column = (bits >> _HALF) >> down
                pair = table[s, column, 1]
                following = np.int64(pair & _LOW if (bits & _LOW) < table[s, column, 0] else pair >> _HALF)
                state[i] = following
                live[still] = i
                still += following < S
                length[i] = t + 1
            alive = still
        for i in range(size):
            how[i] = min(state[i], S + 2) - S if state[i] >= S else 2
            T_i = length[i]
            ends[T_i, how[i]] += 1
            for t in range(T_i):
                counts[T_i, path[i, t]] += 1
