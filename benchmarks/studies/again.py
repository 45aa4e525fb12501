"""Cells of a study once more, from the same data and seeds: do they differ by no more than their noise?

    python -m benchmarks studies.again --study STUDY --out OUT --cells pure-bc-10000-s0 [--base DIR]

On a GPU the sums of a training differ from day to day in their last bits, and samples with them. The
difference is paired by task; its standard error is what evaluations alone leave. With --keep the checkpoints
stay, in OUT/NAME.training.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.study.cells import SweepCell
from analysis.study.config import read_study
from analysis.study.jobs import Student
from analysis.study.registration import FILE
from analysis.study.work import Study, every
from occupancy.runs import open_run
from occupancy.statistics.clusters import clustered_ratio


def main(study: Path, out: Path, cells: list[str], base: str = "", keep: bool = False) -> None:
    """Print a line a cell: pass@1 before and now, and their difference with its standard error."""
    config = read_study(study / "study.toml")
    registered = [
        SweepCell.from_dict(told) for told in json.loads((study / FILE).read_text("utf-8"))["cells"]
    ]
    known = {cell.name: cell for cell in registered}
    if unknown := [name for name in cells if name not in known]:
        raise SystemExit(
            f"--cells {unknown[0]}: expected cells of {study / FILE}, such as {next(iter(known))}"
        )
    work = Study(study, config, here={"base": base} if base else {})
    asyncio.run(_every(work, [known[name] for name in cells], out, keep=keep))


async def _every(work: Study, cells: list[SweepCell], out: Path, *, keep: bool) -> None:
    try:
        await every(_one(work, cell, out / cell.name, keep=keep) for cell in cells)
    finally:
        await work.close()


async def _one(work: Study, cell: SweepCell, out: Path, *, keep: bool) -> None:
    config = work.config
    folders, _ = await asyncio.to_thread(work.cut_for, cell)
    job = Student(
        tuple(folders),
        cell.seed,
        out,
        config.evaluation.tasks,
        config.evaluation.attempts,
        config.training,
        keep=keep,
        evaluation_seed=config.seed,
    )
    before, now = (
        _won(folder, config.success_at)
        for folder in (work.folder / "cells" / cell.name, await work.workshop().do(job))
    )
    change = now.to_numpy(float) - before.to_numpy(float)
    tasks = before.index.get_level_values("task_id").to_numpy()
    mean, se = map(float, clustered_ratio(change, np.ones(len(change)), cluster=pd.factorize(tasks)[0]))
    print(
        f"{cell.name}: {before.mean():.4f} then, {now.mean():.4f} now, {mean:+.4f} ± {se:.4f}; "
        f"{(now == before).mean():.1%} of {len(before):,} attempts end alike"
    )


def _won(folder: Path, success_at: float) -> pd.Series[bool]:
    rows = open_run(folder).read("evaluations").to_pandas().set_index(["task_id", "attempt"]).sort_index()
    return rows["score"] >= success_at
