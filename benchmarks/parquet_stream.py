"""A Parquet file larger than the memory setting: fewsteps, duckdb and polars, each in a process of its own.

    python -m benchmarks parquet_stream [--turns 1e8] [--folder DIR] [--runs 3]

T is counted from the ids, or read from a column. Wall and CPU seconds include starting Python and loading the
library; medians over the runs, engines in turn. Peak is the resident memory of the process. The floor is
pyarrow decoding the same columns with the same threads and doing nothing with them. At the end, passes over
the same turns as mapped files (Arrow IPC and `save_arrays`), of which all but the first are repeated ones.
DIR keeps the files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.busy import memory_mb

STATES, T_MAX, BLOCK = 10_000, 50, 1_000_000


def write(file: Path, turns: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema({"trajectory": pa.int64(), "state": pa.int32(), "task": pa.int32(), "T": pa.int32()})
    done, first = 0, 0
    with pq.ParquetWriter(file, schema) as writer:
        while done < turns:
            random = np.random.default_rng(first)
            T = np.minimum(random.geometric(1 / 13, BLOCK // 12), T_MAX)
            owner = np.repeat(np.arange(first, first + len(T)), T)
            columns = [owner, random.integers(0, STATES, len(owner)), owner // 10, np.repeat(T, T)]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            writer.write_table(pa.table(arrays, schema))
            done, first = done + len(owner), first + len(T)


def by_fewsteps(file: str, length: str | None = None) -> Any:
    from occupancy.record.columns import Columns
    from occupancy.streaming.scan import scan_table

    return scan_table(file, Columns(length=length))[0].tally.trajectory


def decode(file: str, columns: list[str]) -> None:
    import pyarrow.parquet as pq

    from occupancy.kernels.chunks import in_order
    from occupancy.streaming.scan import UNIT_ROWS, row_groups

    units = row_groups([Path(file)], UNIT_ROWS)

    def work(unit: int, _: int) -> None:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            for group in range(units[unit].first, units[unit].last):
                parquet.read_row_group(group, columns=columns, use_threads=False)

    for _ in in_order(work, np.arange(len(units) + 1), workers=None):
        pass


def by_duckdb(file: str) -> Any:
    import duckdb

    lengths = f"(select trajectory, count(*) as n from '{file}' group by trajectory)"
    query = f"select state, sum(1.0 / n) as p from '{file}' join {lengths} using (trajectory) group by state"
    return duckdb.sql(f"select p from ({query}) order by state").fetchnumpy()["p"]


def by_duckdb_with_T(file: str) -> Any:
    import duckdb

    query = f"select state, count(*) as n, sum(1.0 / T) as p from '{file}' group by state"
    return duckdb.sql(f"select p from ({query}) order by state").fetchnumpy()["p"]


def by_polars(file: str) -> Any:
    import polars as pl

    rows = pl.scan_parquet(file)
    T = rows.group_by("trajectory").agg(n=pl.len())
    share = rows.join(T, on="trajectory").group_by("state").agg(p=(1 / pl.col("n")).sum())
    return share.sort("state").collect(engine="streaming")["p"].to_numpy()


def by_polars_with_T(file: str) -> Any:
    import polars as pl

    share = pl.scan_parquet(file).group_by("state").agg(n=pl.len(), p=(1 / pl.col("T")).sum())
    return share.sort("state").collect(engine="streaming")["p"].to_numpy()


def passes(name: str, tally: Callable[[], Any]) -> None:
    """Three passes in one process."""
    for number in range(3):
        begin, cpu = time.perf_counter(), time.process_time()
        tally()
        wall, used = time.perf_counter() - begin, time.process_time() - cpu
        print(f"{name:<28}pass {number + 1}{wall:>8.2f}{used:>8.2f}", flush=True)


def mapped(file: Path) -> None:
    """The same turns as an Arrow IPC file, and as .npy files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from occupancy import Columns, Trajectories, open_arrays, save_arrays, tally
    from occupancy.streaming.scan import scan_table

    arrow, arrays = file.with_suffix(".arrow"), file.with_suffix("")
    if not arrow.exists():
        schema = pq.read_schema(file)
        with pa.OSFile(str(arrow), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in pq.ParquetFile(file).iter_batches(1 << 20):
                writer.write_batch(batch)
    if not arrays.exists():
        table = pq.read_table(file, columns=["trajectory", "state", "task"])
        ids, states, tasks = (column.to_numpy() for column in table.columns)
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        save_arrays(Trajectories(np.append(starts, len(ids)), states, tasks[starts]), arrays)
    print(f"{'':<34}{'wall s':>8}{'CPU s':>8}")
    passes("Arrow IPC, T from ids", lambda: scan_table(arrow, Columns()))
    passes("Arrow IPC, T stored", lambda: scan_table(arrow, Columns(length="T")))
    begin, cpu = time.perf_counter(), time.process_time()
    batch = open_arrays(arrays)
    print(
        f"{'.npy, open and validate':<34}{time.perf_counter() - begin:>8.2f}{time.process_time() - cpu:>8.2f}"
    )
    passes(".npy", lambda: tally(batch))


ENGINES = {
    "fewsteps, T stored": lambda file: by_fewsteps(file, "T"),
    "duckdb, T stored": by_duckdb_with_T,
    "polars, T stored": by_polars_with_T,
    "floor: state, T": lambda file: decode(file, ["state", "T"]),
    "fewsteps, T from ids": by_fewsteps,
    "duckdb, T from ids": by_duckdb,
    "polars, T from ids": by_polars,
    "floor: state, ids": lambda file: decode(file, ["state", "trajectory"]),
}


def once(name: str, file: Path) -> tuple[float, float, float, float | None]:
    """Wall and CPU seconds, peak MB, and the largest share."""
    begin = time.perf_counter()
    child = [sys.executable, "-m", "benchmarks", "parquet_stream", "--engine", name, "--file", str(file)]
    done = subprocess.run(child, capture_output=True, text=True, check=True)
    cpu, peak, top = json.loads(done.stdout)
    return time.perf_counter() - begin, cpu, peak, top


def main(
    turns: float = 1e8, runs: int = 3, folder: Path | None = None, engine: str = "", file: Path = Path()
) -> None:
    if engine:
        p = ENGINES[engine](str(file))
        top = None if p is None else float(p.max() / p.sum())
        # The status, since ru_maxrss of a child counts the parent that it came from.
        print(json.dumps([time.process_time(), memory_mb(field="VmHWM"), top]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        file = (folder or Path(temporary)) / f"turns-{int(turns)}.parquet"
        if not file.exists():
            write(file, int(turns))
        print(f"{turns:,.0f} turns, {file.stat().st_size / 1e9:.2f} GB")
        print(f"{'':<24}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
        seen: dict[str, list[Any]] = {name: [] for name in ENGINES}
        for _ in range(runs):
            for name in ENGINES:
                seen[name].append(once(name, file))
        for name, found in seen.items():
            wall, cpu, peak = (median(run[k] for run in found) for k in range(3))
            print(f"{name:<24}{wall:>8.2f}{cpu:>8.2f}{peak:>9.0f}", flush=True)
        tops = [run[3] for found in seen.values() for run in found if run[3] is not None]
        if max(tops) - min(tops) > 1e-9:
            raise SystemExit(f"the engines disagree: {sorted(set(tops))}")
        mapped(file)
