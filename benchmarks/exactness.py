"""Relative error of every sum over 1e9 turns made on the fly, against exact arithmetic.

    python -m benchmarks exactness [--turns 1e9]

The turns go part by part through the same pass as a stream from a file. Lengths, states, weights and features
are hashes of the turn's number. Weights and features come from a small table of float32 values, so the exact
sums follow from how often each (state, length), (state, entry) and (length, entry) occurs: whole numbers,
counted beside, and added up as fractions. Half of the turns are in one state, so that long sums occur.
"""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
from numba import njit

from occupancy import Trajectories
from occupancy.kernels.draw import GOLDEN, mix
from occupancy.streaming.estimate import Pass

STATES, T_MAX, TABLE, TASKS = 64, 50, 32, 1000
PART = 40_000
"""Trajectories in a part."""


@njit(nogil=True)
def make(offsets, first, states, entry, by_length, by_entry, length_entry):  # noqa: PLR0917
    """States and table entries of the turns from number `first` on, counted as they are made."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        for i in range(offsets[b], offsets[b + 1]):
            word = mix(GOLDEN * np.uint64(first + i))
            s = 0
            while s < STATES - 1 and word & np.uint64(1):
                word >>= np.uint64(1)
                s += 1
            e = np.int64((word >> np.uint64(1)) & np.uint64(TABLE - 1))
            states[i], entry[i] = s, e
            by_length[s, T] += 1
            by_entry[s, e] += 1
            length_entry[T, e] += 1


def largest_errors(turns: float) -> tuple[int, dict[str, float]]:
    """Turns made, and the largest relative error of each kind of sum."""
    random = np.random.default_rng(0)
    w, f = (random.random((2, TABLE)) ** 8).astype(np.float32)  # of magnitudes so different that sums round
    by_length = np.zeros((STATES, T_MAX + 1), np.int64)
    by_entry = np.zeros((STATES, TABLE), np.int64)
    length_entry = np.zeros((T_MAX + 1, TABLE), np.int64)
    one_pass, done = Pass(cell_memory=0), 0
    while done < turns:
        T = random.integers(1, T_MAX + 1, PART)
        offsets = np.concatenate([[0], np.cumsum(T)])
        n = int(offsets[-1])
        states, entry = np.empty(n, np.int32), np.empty(n, np.int64)
        make(offsets, done, states, entry, by_length, by_entry, length_entry)
        columns = {"features": f[entry], "weights": w[entry], "n_states": STATES}
        one_pass.add(Trajectories(offsets, states, np.arange(PART) % TASKS, **columns), None)
        done += n
    found = one_pass.finish()
    sums = one_pass.parts
    assert sums.tally is not None, "one part is no stream: ask for more turns"
    over = [Fraction(0), *(Fraction(1, T) for T in range(1, T_MAX + 1))]
    weight, value = ([Fraction(float(x)) for x in column] for column in (w, f))
    entries = by_entry.sum(axis=0).tolist()
    pairs = {
        "pooled": [(int(a), sum(row)) for a, row in zip(found.tally.counts, by_length.tolist(), strict=True)],
        "trajectory-uniform": [
            (a, dot(row, over))
            for a, row in zip(found.tally.inverse_lengths.tolist(), by_length.tolist(), strict=True)
        ],
        "general w": [
            (a, dot(row, weight))
            for a, row in zip(sums.weighted.value.tolist(), by_entry.tolist(), strict=True)
        ],
        "w squared": [(float(sums.weight_squares.value[0]), dot(entries, [x * x for x in weight]))],
        "mean, pooled": [(total(sums.means["pooled"].numerators), dot(entries, value))],
        "mean, trajectory-uniform": [
            (
                total(sums.means["trajectory"].numerators),
                dot((dot(row, value) for row in length_entry.tolist()), over),
            )
        ],
        "mean, general w": [
            (
                total(sums.means["weights"].numerators),
                dot(entries, [x * y for x, y in zip(weight, value, strict=True)]),
            )
        ],
    }
    return done, {
        name: max(abs(float((Fraction(ours) - exact) / exact)) for ours, exact in rows if exact)
        for name, rows in pairs.items()
    }


def dot(counts, values):  # type: ignore[no-untyped-def]
    """Exact sum of products."""
    return sum((n * v for n, v in zip(counts, values, strict=True)), Fraction(0))


def total(sums: np.ndarray) -> float:
    """Sum over tasks."""
    return float(sums.sum())


def main(turns: float = 1e9) -> None:
    begin = time.process_time()
    done, errors = largest_errors(turns)
    print(f"{done:,} turns, {time.process_time() - begin:.0f} CPU s; largest relative error of a sum")
    for name, error in errors.items():
        print(f"{name:<26}{error:.1e}")
    if max(errors.values()) > 1e-12:
        raise SystemExit("above 1e-12")
