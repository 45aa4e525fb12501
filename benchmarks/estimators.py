"""Estimators against numpy, pandas, polars, duckdb, awkward and jax: ns per turn by process CPU time.

    python -m benchmarks estimators [--turns 1e7] [--runs 9] [--ours]

Every rival computes the same numbers, which is checked. Threads are left as each library has them: CPU time
counts all; `--ours` leaves the rivals out. The read bound is the CPU time of summing the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.ragged import STATES, batch, cpu_ns, report
from occupancy import Trajectories, cluster_sums, occupancy, ratio, tally
from occupancy.kernels import sums as kernels
from occupancy.kernels.columns import Turns, Weights
from occupancy.statistics.estimate import weighted_sums

Rivals = dict[str, Callable[[], Any]]


def tiled(b: Trajectories, tile: int = 4096) -> np.ndarray:
    """Trajectory-uniform histogram in numpy, a few thousand trajectories at a time."""
    sums = np.zeros(STATES)
    for begin in range(0, len(b), tile):
        offsets = b.offsets[begin : begin + tile + 1]
        T = np.diff(offsets)
        weights = np.repeat(1 / np.maximum(T, 1), T)
        sums += np.bincount(b.states[offsets[0] : offsets[-1]], weights, minlength=STATES)
    return sums / len(b)


def whole(b: Trajectories) -> np.ndarray:
    T = b.lengths
    return np.bincount(b.states, np.repeat(1 / np.maximum(T, 1), T), minlength=STATES) / len(b)


def uniform_rivals(b: Trajectories) -> Rivals:
    import awkward as ak
    import duckdb
    import jax
    import jax.numpy as jnp
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    owner = np.repeat(np.arange(len(b)), b.lengths)
    frame, lazy = pd.DataFrame({"b": owner, "s": b.states}), pl.DataFrame({"b": owner, "s": b.states})
    database = duckdb.connect()
    database.register("turns", pa.table({"b": owner, "s": b.states}))
    ragged = ak.unflatten(b.states, b.lengths)
    offsets, states = jnp.asarray(b.offsets.astype(np.int32)), jnp.asarray(b.states)
    n = len(b)

    def by_pandas() -> Any:
        w = 1 / frame.groupby("b")["s"].transform("size")
        return (w.groupby(frame["s"]).sum() / n).to_numpy()

    def by_polars() -> Any:
        share = lazy.with_columns(w=1 / pl.len().over("b")).group_by("s").agg(pl.col("w").sum() / n)
        return share.sort("s")["w"].to_numpy()

    def by_duckdb() -> Any:
        return database.sql(
            f"select sum(1.0 / T) / {n} as p from turns join (select b, count(*) as T from turns group by b) "
            "using (b) group by s order by s"
        ).fetchnumpy()["p"]

    def by_awkward() -> Any:
        w = ak.flatten(ak.broadcast_arrays(1 / ak.num(ragged), ragged)[0])
        return np.bincount(ak.to_numpy(ak.flatten(ragged)), ak.to_numpy(w), minlength=STATES) / n

    @jax.jit
    def jitted(offsets: Any, states: Any) -> Any:
        T = jnp.diff(offsets)
        w = jnp.repeat(1 / T, T, total_repeat_length=len(states))
        return jax.ops.segment_sum(w, states, num_segments=STATES) / n

    return {
        "numpy whole array": lambda: whole(b),
        "numpy tiled": lambda: tiled(b),
        "pandas": by_pandas,
        "polars": by_polars,
        "duckdb": by_duckdb,
        "awkward": by_awkward,
        "jax": lambda: np.asarray(jitted(offsets, states)),
    }


def compare(title: str, ours: Rivals, rivals: Rivals, turns: int, runs: int) -> None:
    """Time everything; what returns an array must return the same one, to float32."""
    print(f"\n{title}, {turns:,} turns")
    rows, expected = {}, None
    for name, work in {**ours, **rivals}.items():
        found = work()
        if isinstance(found, np.ndarray):
            expected = found if expected is None else expected
            if np.abs(found - expected).max() > 1e-3 * expected.max():
                raise SystemExit(f"{name} computes something else")
        rows[name] = cpu_ns(work, runs=runs)
    report(rows, turns, "ns a turn", next(iter(ours)))


def main(turns: float = 1e7, runs: int = 9, ours: bool = False) -> None:
    b = batch(int(turns), weights=True, features=True)
    N, w, rivals = b.n_turns, b.weights, not ours
    report(
        {
            "read states": cpu_ns(b.states.max, runs=runs),
            "read states and weights": cpu_ns(lambda: (b.states.max(), w.max()), runs=runs),
        },
        N,
        "ns a turn",
        "read states",
    )
    counts, sums = np.zeros(STATES, np.int64), np.zeros(STATES)
    edges = np.array([0, len(b)])
    rows, weights = Turns(b.offsets, b.states), Weights(np.empty(0), w)
    compare(
        "pooled histogram",
        {"fewsteps kernel": lambda: kernels.count_states(b.states, counts)},
        {"numpy bincount": lambda: np.bincount(b.states, minlength=STATES)} if rivals else {},
        N,
        runs,
    )
    compare(
        "trajectory-uniform histogram; ours makes the pooled one as well",
        {"fewsteps tally": lambda: tally(b, workers=1).trajectory},
        uniform_rivals(b) if rivals else {},
        N,
        runs,
    )
    compare(
        "general w",
        {
            "fewsteps kernel": lambda: kernels.sum_states(rows, weights, edges, sums) and None,
            "fewsteps, rounding carried": lambda: weighted_sums(b, weights, 1),
        },
        {"numpy bincount": lambda: np.bincount(b.states, w, minlength=STATES)} if rivals else {},
        N,
        runs,
    )
    compare(
        "whole estimates with standard errors clustered by task",
        {
            "mean": lambda: ratio(cluster_sums(b, convention="trajectory", workers=1)),
            "occupancy, pooled": lambda: occupancy(b, convention="pooled", workers=1),
            "occupancy, trajectory": lambda: occupancy(b, convention="trajectory", workers=1),
            "occupancy, task": lambda: occupancy(b, convention="task", workers=1),
            "occupancy, weights": lambda: occupancy(b, convention="weights", workers=1),
        },
        {},
        N,
        max(3, runs // 3),
    )
