"""A Parquet file larger than the memory setting: fewsteps, duckdb and polars, each in a process of its own.

    python -m benchmarks parquet_stream [--turns 1e8] [--folder DIR]

Wall and CPU seconds include starting Python and loading the library. T is derived from the ids by all, and
also read from a column by the rivals. Peak is the resident memory of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

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


def by_fewsteps(file: str) -> Any:
    from occupancy.columns import Columns
    from occupancy.scan import scan_table

    return scan_table(file, Columns())[0].tally.trajectory


def by_fewsteps_with_T(file: str) -> Any:
    from occupancy.columns import Columns
    from occupancy.scan import scan_table

    return scan_table(file, Columns(length="T"))[0].tally.trajectory


def by_fewsteps_with_errors(file: str) -> Any:
    from occupancy.columns import Columns
    from occupancy.stream import open_turns
    from occupancy.stream_estimate import estimate_stream

    return estimate_stream(open_turns(file, Columns())).tally.trajectory


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


ENGINES = {
    "fewsteps": by_fewsteps,
    "fewsteps, T stored": by_fewsteps_with_T,
    "duckdb": by_duckdb,
    "polars": by_polars,
    "duckdb, T stored": by_duckdb_with_T,
    "polars, T stored": by_polars_with_T,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=float, default=1e8)
    arguments.add_argument("--folder", type=Path, help="where the file is written and kept")
    arguments.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    arguments.add_argument("--file", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.engine:
        p = ENGINES[given.engine](given.file)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps([usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, float(p.max() / p.sum())]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        file = (given.folder or Path(temporary)) / f"turns-{int(given.turns)}.parquet"
        if not file.exists():
            write(file, int(given.turns))
        print(f"{given.turns:,.0f} turns, {file.stat().st_size / 1e9:.2f} GB")
        print(f"{'':<20}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
        seen = []
        for name in ENGINES:
            begin = time.perf_counter()
            child = [sys.executable, __file__, "--engine", name, "--file", str(file)]
            done = subprocess.run(child, capture_output=True, text=True, check=True)
            cpu, peak, top = json.loads(done.stdout)
            seen.append(top)
            print(f"{name:<20}{time.perf_counter() - begin:>8.2f}{cpu:>8.2f}{peak:>9.0f}", flush=True)
        if max(seen) - min(seen) > 1e-9:
            raise SystemExit(f"the engines disagree: {seen}")


if __name__ == "__main__":
    main()
