"""`fewsteps study CONFIG.toml`. Heavy imports wait until the command runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from occupancy.record.show import add_json, say, show, table
from occupancy.record.specs import Few, Positive, Size, option


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `study`; it sets `handler`, (arguments) -> exit code."""
    study = subparsers.add_parser(
        "study",
        help="predict, write the prediction down, then train and compare",
        description="Carry a study out: demonstrations, pi_1, pilot, small trainings and plan, registration, "
        "collection, sweep, verdict. The same command goes on where it was stopped, also on another machine "
        "that has the study's folder.",
    )
    study.add_argument("config", metavar="CONFIG.toml", help="see benchmarks/studies")
    study.add_argument("--out", metavar="DIR", help="the study's folder (default: study-NAME)")
    study.add_argument("--stop-after", metavar="STAGE", default="verdict", help="the last stage that is done")
    study.add_argument(
        "--minutes", type=option(Positive), default=float("inf"), help="begin no job that would end later"
    )
    study.add_argument(
        "--gpus", type=option(Size), help="workers, one a GPU; 0: one on the CPU (default: all GPUs)"
    )
    study.add_argument("--base", metavar="DIR", help="where pi_0 is on this machine (default: the config's)")
    study.add_argument("--workers", type=option(Few), metavar="N", help="tasks that a worker plays at a time")
    study.add_argument("--dry-run", action="store_true", help="say what is left and what it will take")
    add_json(study)
    study.set_defaults(handler=_study)


def _study(given: argparse.Namespace) -> int:
    # Read when numpy is loaded. A plan's matrices are small: threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import asyncio
    from pathlib import Path

    from analysis.study.accounts import left_of
    from analysis.study.config import read_study
    from analysis.study.stages import begin, carry_out, stages_to
    from analysis.study.work import Study
    from occupancy.record.errors import InputError
    from occupancy.record.reading import read_json
    from occupancy.runs import only_writer

    stages_to(given.stop_after)
    folder = Path(f"study-{read_study(given.config).name}" if given.out is None else given.out).resolve()
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {given.out!r}: expected the name of a folder, the study's or a new one")
    if given.dry_run:
        begun = (folder / "study.toml").exists()
        config = begin(folder, given.config) if begun else read_study(given.config)
        at_once = Study(folder, config, gpus=given.gpus).at_once
        left = left_of(folder, config, at_once=at_once)
        plain: dict[str, Any] = {
            "folder": str(folder),
            "left": [vars(one) | {"seconds": one.seconds} for one in left],
            "seconds": sum(one.seconds for one in left),
            "at_once": at_once,
        }
        show(given, plain, lambda: _left(plain, _machine(given.gpus, bool(config.workshop))))
        if plain["seconds"] and not config.workshop:
            from analysis.study.workshops import check_base

            check_base(given.base or str(config.equipment.get("base", "")))
        return 0
    config = begin(folder, given.config)
    here = {name: getattr(given, name) for name in ("base", "workers") if getattr(given, name) is not None}

    async def all_of_it() -> None:
        study = Study(folder, config, gpus=given.gpus, minutes=given.minutes, say=say, here=here)
        await carry_out(study, stop_after=given.stop_after)

    with only_writer(folder):
        asyncio.run(all_of_it())
    report, verdict = {"folder": str(folder), "stopped_after": given.stop_after}, folder / "verdict.json"
    show(given, read_json(verdict) if verdict.exists() else report, str(folder))
    return 0


def _machine(gpus: int | None, own_workshop: bool) -> str:
    if own_workshop:
        return "the config's own workshop"
    if gpus == 0:
        return "the CPU, where jobs take longer than a GPU's"
    return "1 GPU: --gpus N for more" if gpus is None else f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _left(plain: dict[str, Any], machine: str) -> Iterator[Any]:
    jobs = sum(one["jobs"] for one in plain["left"])
    yield (
        f"{jobs:,} jobs are left: about {plain['seconds']:,.0f} s, {plain['at_once']} jobs at a time "
        f"({machine}), one stage after the other."
    )
    rows = [
        (one["stage"], one["jobs"], f"{one['each_s']:.3g}", one["source"], f"{one['seconds']:,.0f}")
        for one in plain["left"]
    ]
    heads = ("stage", "jobs", "s each", "from", "s")
    yield table(f"left of {plain['folder']}", heads, rows, left=("stage", "from"))
