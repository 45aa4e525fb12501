"""What the jobs of a study took, what is left of it, and how many seconds that will take."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from agentloop.commands.doctor import check_gpu
from analysis.study.cells import SweepCell, cells_of
from analysis.study.config import PURE_BC, StudyConfig
from occupancy.record.errors import DataError
from occupancy.record.reading import read_json
from occupancy.record.specs import NotNegative, check_entries

REFERENCES = ("pi_1", "pilot")
"""Students that nothing is bought for: trained on D_BC, and on D_BC with the pilot's successes."""
JOBS_A_WORKER = 2
"""At a time, in the product's own workshop: one trains while another plays."""
LOG = "jobs.jsonl"
_JOB = {"stage": str, "job": str, "seconds": NotNegative}


@dataclass(frozen=True)
class Left:
    """What is left of a stage."""

    stage: str
    jobs: int
    each_s: float
    """Seconds of one job."""
    source: str
    """Where `each_s` comes from: the study's own jobs, or a guess."""
    at_once: int

    @property
    def seconds(self) -> float:
        """By the clock, with `at_once` jobs at a time."""
        return self.each_s * -(-self.jobs // self.at_once)

    def __str__(self) -> str:
        if not self.jobs:
            return f"{self.stage}: nothing left"
        each = f"{self.each_s:.3g} s each ({self.source})"
        jobs = "1 job" if self.jobs == 1 else f"{self.jobs} jobs"
        return f"{self.stage}: {jobs}, {each}, {self.at_once} at a time: {self.seconds:,.0f} s"


def log_job(folder: Path, stage: str, job: str, seconds: float) -> None:
    """Append a finished job to the study's log."""
    _append(folder, {"stage": stage, "job": job, "seconds": round(seconds, 2)})


def log_machine(folder: Path) -> None:
    """Append the machine that a workshop is opened on to the study's log."""
    cards = check_gpu()
    told = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cards": cards.found if cards.good else "none",
        "cores": os.cpu_count(),
        "system": platform.platform(),
    }
    _append(folder, {"machine": told})


def _append(folder: Path, line: Mapping[str, Any]) -> None:
    with (folder / LOG).open("a+b") as log:
        log.seek(max(log.tell() - 1, 0))
        is_cut = log.read() not in (b"", b"\n")  # by a kill: this line must not be a part of that one
        log.write(b"\n" * is_cut + json.dumps(line).encode() + b"\n")


def jobs_of(folder: Path) -> list[dict[str, Any]]:
    """Finished jobs with their seconds."""
    return [line for line in _log(folder) if "seconds" in line]


def machines_of(folder: Path) -> list[dict[str, Any]]:
    """Machines that worked on the study, each time with the date."""
    return [line["machine"] for line in _log(folder) if "machine" in line]


def _log(folder: Path) -> list[dict[str, Any]]:
    """Lines of the log; one that a kill cut short, or that is damaged, is left out."""
    file = folder / LOG
    found = []
    for line in file.read_text("utf-8", errors="replace").splitlines() if file.exists() else ():
        with suppress(ValueError, RecursionError, DataError):
            told = json.loads(line)
            of_machine = isinstance(told, dict) and "machine" in told
            check_entries(told, {"machine": Mapping[str, Any]} if of_machine else _JOB, of=str(file))
            found.append(told)
    return found


def expected_s(folder: Path, config: StudyConfig, stage: str) -> tuple[float, str]:
    """Seconds of a job of a stage, and where that comes from."""
    if own := _took(folder, stage):
        return fmean(own), f"mean of {len(own)} finished jobs"
    return float(getattr(config.seconds, stage)), "a guess of the config"


def likely_s(folder: Path, config: StudyConfig, stage: str) -> float:
    """Seconds within which three of four jobs of a stage end."""
    own = sorted(_took(folder, stage))
    return own[3 * len(own) // 4] if own else expected_s(folder, config, stage)[0]


def _took(folder: Path, stage: str) -> list[float]:
    """Seconds of finished jobs; where a cell is not finished yet, of small trainings, which are its like."""
    logged = jobs_of(folder)
    for like in (stage, "trainings") if stage == "sweep" else (stage,):
        if own := [float(job["seconds"]) for job in logged if job["stage"] == like]:
            return own
    return []


def registered_cells(folder: Path, config: StudyConfig) -> list[SweepCell]:
    """The sweep's cells in order: as they are registered, or as they would be if the plan chose pure BC."""
    file = folder / "registration.json"
    if not file.exists():
        return cells_of(config.sweep, dict.fromkeys(config.sweep.budgets, PURE_BC))
    return [SweepCell.from_dict(told) for told in read_json(file)["cells"]]


def undone(folder: Path, config: StudyConfig) -> list[SweepCell | str]:
    """What is left of the sweep, in order: names of references, and cells that the collection can supply."""

    def is_done(one: SweepCell | str) -> bool:
        place = folder / "cells" / (one if isinstance(one, str) else one.name)
        told = place.with_name(f"{place.name}.json")
        return (place / "run.json").exists() or (told.exists() and "cannot" in read_json(told))

    every: list[SweepCell | str] = [*REFERENCES, *registered_cells(folder, config)]
    return [one for one in every if not is_done(one)]


def left_of(folder: Path, config: StudyConfig, *, at_once: int) -> list[Left]:
    """What is left of every stage that buys or trains something."""

    def parts(name: str, n: int) -> int:
        if (folder / name / "run.json").exists():
            return 0
        return n - len(list((folder / "pieces").glob(f"{Path(name).name}-*/run.json")))

    shown = parts("demonstrations/first", 1) + parts("demonstrations/more", config.demonstrations.parts)
    trained = len(list((folder / "trainings").glob("*")))
    planned, student = folder / "plan.json", folder / "work" / "students" / "pi_1"
    played = all((folder / name / "run.json").exists() for name in ("pilot", "collection"))
    jobs = {
        "demonstrations": shown,
        "pi_1": int(not played and not student.exists()),
        "pilot": parts("pilot", config.pilot.parts),
        "trainings": 0 if planned.exists() else max(config.trainings.count - trained, 0),
        "collection": parts("collection", config.collection.parts),
        "sweep": len(undone(folder, config)),
    }
    return [Left(stage, n, *expected_s(folder, config, stage), at_once) for stage, n in jobs.items()]
