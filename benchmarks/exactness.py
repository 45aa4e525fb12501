"""Relative error of every sum over 1e9 turns made on the fly, against exact arithmetic.

    python -m benchmarks exactness [--turns 1e9]

Lengths cycle through 1..T_max and states are a hash, so exact sums are counted by (state, length) in whole
numbers and added as fractions. General weights are a tenth of float32 values of a small table, counted
the same way.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction

import numpy as np

from occupancy import Trajectories
from occupancy.chunks import Total
from occupancy.estimate import weighted_sums
from occupancy.tallies import tally

STATES, T_MAX, TABLE = 64, 50, 32
BLOCK = 40_000


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=float, default=1e9)
    given = arguments.parse_args()
    weights = np.random.default_rng(0).random(TABLE).astype(np.float32)
    by_length = np.zeros((STATES, T_MAX + 1), np.int64)
    by_weight = np.zeros((STATES, TABLE), np.int64)
    total, general, done, block = None, Total(STATES), 0, 0
    begin = time.process_time()
    while done < given.turns:
        random = np.random.default_rng(block)
        T = random.integers(1, T_MAX + 1, BLOCK)
        n = int(T.sum())
        # Few states take most turns, so that long sums in one state are tested.
        states = np.minimum(random.geometric(0.3, n) - 1, STATES - 1)
        kind = random.integers(0, TABLE, n)
        part = Trajectories(
            np.concatenate([[0], np.cumsum(T)]),
            states,
            np.zeros(BLOCK, np.int32),
            n_states=STATES,
            weights=weights[kind],
        )
        found = tally(part)
        total = found if total is None else total + found
        general.add(weighted_sums(part, np.full(BLOCK, 0.1), part.weights))
        by_length += np.bincount(states * (T_MAX + 1) + np.repeat(T, T), minlength=by_length.size).reshape(
            by_length.shape
        )
        by_weight += np.bincount(states * TABLE + kind, minlength=by_weight.size).reshape(by_weight.shape)
        done, block = done + n, block + 1
    errors = {"pooled": 0.0, "trajectory-uniform": 0.0, "general w": 0.0}
    for s in range(STATES):
        rows = {
            "pooled": (int(total.counts[s]), Fraction(int(by_length[s].sum()))),
            "trajectory-uniform": (
                float(total.inverse_lengths[s]),
                sum(Fraction(int(by_length[s, T]), T) for T in range(1, T_MAX + 1)),
            ),
            "general w": (
                float(general.value[s]),
                sum(int(c) * Fraction(0.1 * float(w)) for c, w in zip(by_weight[s], weights, strict=True)),
            ),
        }
        for name, (ours, exact) in rows.items():
            if exact:
                errors[name] = max(errors[name], abs(float((Fraction(ours) - exact) / exact)))
    print(f"{done:,} turns, {time.process_time() - begin:.0f} CPU s; largest relative error of a state's sum")
    for name, error in errors.items():
        print(f"{name:<20}{error:.2e}")
    if max(errors.values()) > 1e-12:
        raise SystemExit("above 1e-12")


if __name__ == "__main__":
    main()
