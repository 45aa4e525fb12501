"""Switch times and the bootstrap against numpy: ns by process CPU time.

python -m benchmarks draws [--turns 1e7] [--runs 9]
"""

from __future__ import annotations

import numpy as np

from benchmarks.ragged import T_MAX, batch, cpu_ns, report
from occupancy import SwitchLaw, bootstrap, cluster_sums, draw_switches
from occupancy.kernels import draw as kernels_draw
from occupancy.kernels import rng


def main(turns: float = 1e7, runs: int = 9) -> None:
    b = batch(int(turns), weights=True, features=True)
    B, T, random = len(b), b.lengths, np.random.default_rng(1)
    out = kernels_draw.Drawn(np.empty(B, np.int32), np.empty(B), np.empty(B, np.bool_))
    stream = kernels_draw.Stream(np.uint64(rng.stream_key(1, 0)), np.uint64(0))
    print(f"Unif{{1..T}}, {B:,} trajectories")
    report(
        {
            "kernel": cpu_ns(lambda: kernels_draw.draw_uniform(b.offsets, 0, stream, out), runs=runs),
            "draw_switches": cpu_ns(lambda: draw_switches(b, SwitchLaw(), seed=1), runs=runs),
            "numpy": cpu_ns(lambda: 1 + (random.random(B) * T).astype(np.int32), runs=runs),
            "numpy integers": cpu_ns(lambda: random.integers(1, T + 1), runs=runs),
        },
        B,
        "ns a trajectory",
        "kernel",
    )
    print(f"\nUnif{{1..T_max}} with rejection, {B:,} trajectories")
    law = SwitchLaw("fixed")
    report(
        {
            "draw_switches": cpu_ns(lambda: draw_switches(b, law, seed=1, T_max=T_MAX), runs=runs),
            "numpy": cpu_ns(lambda: random.integers(1, T_MAX + 1, B) <= T, runs=runs),
        },
        B,
        "ns a trajectory",
        "draw_switches",
    )
    print(f"\ncategorical by weights, {b.n_turns:,} turns")

    def by_cumsum() -> np.ndarray:
        total = np.cumsum(b.weights, dtype=np.float64)
        edges = np.concatenate([[0.0], total])[b.offsets]
        target = edges[:-1] + random.random(B) * np.diff(edges)
        return np.searchsorted(total, target, side="right") - b.offsets[:-1] + 1

    report(
        {
            "kernel": cpu_ns(
                lambda: kernels_draw.draw_weighted(b.offsets, b.weights, stream, out), runs=runs
            ),
            "numpy cumsum": cpu_ns(by_cumsum, runs=runs),
        },
        b.n_turns,
        "ns a turn",
        "kernel",
    )
    sums = cluster_sums(batch(10_000_000, features=True), convention="trajectory")
    Q, A, D, R = len(sums.tasks), sums.numerators[:, 0], sums.denominators, 200
    print(f"\nbootstrap, {Q:,} tasks, {R} replicates")

    def by_bincount() -> list[float]:
        counts = (np.bincount(random.integers(0, Q, Q), minlength=Q) for _ in range(R))
        return [float((k @ A) / (k @ D)) for k in counts]

    report(
        {
            scheme: cpu_ns(
                lambda scheme=scheme: bootstrap(sums, seed=1, replicates=R, scheme=scheme, workers=1),
                runs=runs,
            )
            for scheme in ("poisson", "gather")
        }
        | {"numpy bincount": cpu_ns(by_bincount, runs=3)},
        Q * R,
        "ns a task",
        "poisson",
    )
