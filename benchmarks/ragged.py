"""Ragged batches for benchmarks: horizons truncated-geometric (mean 12, T_max 50), 10,000 states."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from occupancy import Trajectories

STATES, T_MAX = 10_000, 50


def batch(turns: int, *, seed: int = 0, weights: bool = False, features: bool = False) -> Trajectories:
    """About `turns` turns; one task to ten trajectories."""
    random = np.random.default_rng(seed)
    lengths = np.minimum(random.geometric(1 / 13, turns // 12 + 1), T_MAX)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    return Trajectories(
        offsets,
        random.integers(0, STATES, n, dtype=np.int32),
        (np.arange(len(lengths)) // 10).astype(np.int32),
        n_states=STATES,
        weights=random.random(n, dtype=np.float32) if weights else None,
        features=random.random(n, dtype=np.float32) if features else None,
    )


def cpu_ns(work: Callable[[], object], *, runs: int = 9) -> tuple[float, float, float]:
    """(first call, median, spread) of process CPU time in ns; spread is the range of the middle half."""
    first = _once(work)
    times = sorted(_once(work) for _ in range(runs))
    return first, median(times), times[-1 - runs // 4] - times[runs // 4]


def report(rows: dict[str, tuple[float, float, float]], per: float, unit: str, ours: str) -> None:
    """A table of ns per unit and of ratios to `ours`; the first call has compiling and loading in it."""
    base = rows[ours][1]
    print(f"{'':<28}{unit:>16}{'spread':>10}{'ratio':>8}{'first call s':>14}")
    for name, (first, middle, spread) in rows.items():
        print(
            f"{name:<28}{middle / per:>16.3f}{spread / per:>10.3f}{middle / base:>8.2f}{first / 1e9:>14.3f}"
        )
    sys.stdout.flush()


def _once(work: Callable[[], object]) -> float:
    begin = time.process_time_ns()
    work()
    return float(time.process_time_ns() - begin)
