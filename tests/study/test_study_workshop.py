"""Real workers on the CPU with a model of a few thousand weights: all kinds of jobs, kills, resumption."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from tiny_model import save_tiny_model
from toy_runs import run_of

from analysis.study import lines
from analysis.study.jobs import Collect, Equipment, Student, Train
from analysis.study.workshops import open_workshop
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

TINY = {"precision": "fp32", "epochs": 2, "batch": 4, "row_tokens": 256, "lr": 1e-3, "held_out": 0.3}


@pytest.fixture(scope="module")
def equipment(tmp_path_factory: pytest.TempPathFactory) -> Equipment:
    base = save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    return Equipment(
        str(base),
        "toy_world:open_corridors",
        "alfworld",
        engine="transformers",
        sampling={"max_tokens": 4, "temperature": 0.7, "memory": 0.02},
    )


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("demos") / "run"
    run_of(place, preset("pure-bc", n=1, T_max=12), tasks="6")
    return place


@pytest.fixture(autouse=True)
def tests_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the toy world, and none of them takes both cores."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
def test_every_kind_of_job_is_done_once(tmp_path: Path, equipment: Equipment) -> None:
    T = 12
    demos = Collect(preset("pure-bc", T_max=T), "drunk", "expert", "6", None, 0, tmp_path / "demos")
    cut = Collect(
        preset("pure-bc", T_max=T), "drunk", "expert", "6", 120, 0, tmp_path / "cut", {"turn_tokens": 40}
    )
    pi_1 = Train((demos.out,), 0, tmp_path / "pi_1", TINY)
    cell = Student((demos.out, tmp_path / "op"), 1, tmp_path / "cells" / "a", "3", 2, TINY)
    kept = replace(cell, out=tmp_path / "cells" / "b", seed=2, keep=True)

    async def first() -> Path:
        workshop = open_workshop(equipment, tmp_path, gpus=0)
        try:
            assert await workshop.do(demos) == demos.out
            checkpoint, _ = await asyncio.gather(workshop.do(pi_1), workshop.do(cut))
            recipe = preset("op-short", K=2, T_max=T)
            await workshop.do(Collect(recipe, checkpoint, "expert", "4", None, 0, tmp_path / "op"))
            await asyncio.gather(workshop.do(cell), workshop.do(kept))
            # What a job cannot do is one line, and ends no worker.
            (pid,) = workshop.pids
            with pytest.raises(InputError, match="unknown training settings"):
                await workshop.do(replace(pi_1, out=tmp_path / "bad", settings={"epoch": 1}))
            with pytest.raises(InputError, match="expected a number of corridors"):
                await workshop.do(replace(demos, out=tmp_path / "bad", tasks="x"))
            assert workshop.pids == [pid]
            return checkpoint
        finally:
            await workshop.close()

    checkpoint = asyncio.run(first())
    assert [f.name for f in (tmp_path / "pi_1").iterdir() if f.is_dir()] == [checkpoint.name]
    bought = open_run(tmp_path / "op")
    assert bought.info["student"] == "transformers:pi_1,max_tokens=4,temperature=0.7"
    assert bought.read("traces").num_rows
    assert 0 < sum(open_run(cut.out).read("traces").column("C_tr").to_pylist()) <= 120
    for folder in (cell.out, kept.out):
        run = open_run(folder)
        assert run.read("evaluations").num_rows == 6
        (row,) = run.read("trainings").to_pylist()
        assert json.loads(row["data"])["r_tasks"] > 0
        assert set(json.loads((folder / "job.json").read_text())["seconds"]) == {"train", "gpu", "evaluate"}
    assert sorted(f.name for f in cell.out.parent.iterdir()) == ["a", "b", "b.training"]

    async def again() -> None:
        workshop = open_workshop(replace(equipment, workers=3), tmp_path, gpus=0)
        for job in (demos, cut, pi_1, cell, kept):
            assert await workshop.do(job) == (checkpoint if job == pi_1 else job.out)
        assert not workshop.pids, "a finished job needs no worker"
        with pytest.raises(DataError, match=r"holds the result of another job \(its seed differ\)"):
            await workshop.do(replace(cell, seed=5))
        await workshop.close()

    asyncio.run(again())


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_job_goes_on(
    tmp_path: Path, equipment: Equipment, demos: Path
) -> None:
    job = Student((demos,), 0, tmp_path / "cell", "4", 4, TINY)

    async def main() -> None:
        workshop = open_workshop(equipment, tmp_path, gpus=0)

        async def kill_amid_the_evaluation() -> None:
            while not (job.out / "parts").exists():
                await asyncio.sleep(0.02)
            (pid,) = workshop.pids
            os.kill(pid, signal.SIGKILL)

        killing = asyncio.create_task(kill_amid_the_evaluation())
        try:
            await workshop.do(job)
        finally:
            await workshop.close()
            await killing

    asyncio.run(main())
    assert open_run(job.out).read("evaluations").num_rows == 16


def test_a_job_whose_workers_always_die_is_given_up(
    tmp_path: Path, equipment: Equipment, demos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = 0
    real = lines.start

    async def dying(module: str, **given: Any) -> lines.Peer:
        nonlocal started
        started += 1
        return await real("sysconfig", **given)

    monkeypatch.setattr(lines, "start", dying)

    async def main() -> None:
        workshop = open_workshop(equipment, tmp_path, gpus=0)
        with pytest.raises(RunError, match=r"cell could not be made in 3 tries \(the last one: process"):
            await workshop.do(Student((demos,), 0, tmp_path / "cell", "4", 8, TINY))
        await workshop.close()

    asyncio.run(main())
    assert started == 3


def test_a_workshop_that_cannot_work_is_refused(tmp_path: Path, equipment: Equipment) -> None:
    def refused(match: str, gpus: int = 0, **changes: Any) -> None:
        with pytest.raises(InputError, match=match):
            open_workshop(replace(equipment, **changes), tmp_path, gpus=gpus)

    refused("--gpus 99: this machine has", gpus=99)
    refused("holds no config.json", base=str(tmp_path))
    refused("no preset 'dance'", preset="dance")
    refused("sampling has no setting 'heat'", sampling={"heat": 1})
