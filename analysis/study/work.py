"""A study at work: its folder, its workshop, and jobs whose results take their names when they are whole.

STUDY/study.toml           the config
STUDY/demonstrations/      first (D_BC) and more, run folders
STUDY/pilot                run folder; holds the rewards of the small trainings
STUDY/trainings/           evaluations of the small trainings
STUDY/plan.json            a plan for each budget
STUDY/registration.json    the prediction, written before anything else is bought
STUDY/collection           run folder: whole continuations of pi_1
STUDY/cells/               for each cell an evaluation, and in NAME.json what it was trained on
STUDY/verdict.json, .md    predicted against measured
STUDY/jobs.jsonl           seconds of every job
STUDY/pieces               collections that are not finished
STUDY/work                 checkpoints, cuts, unfinished evaluations: made again where it is missing
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any

from agentloop.cuts.cut import cut, own_traces
from agentloop.cuts.pooled import pooled
from agentloop.cuts.whole import Whole
from analysis.plan.trainer import named_trainer
from analysis.study.accounts import JOBS_A_WORKER, likely_s, log_job, log_machine
from analysis.study.cells import SweepCell
from analysis.study.config import StudyConfig, slices
from analysis.study.jobs import Collect, Equipment, Job, Student, Train, Workshop
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import BudgetStopped
from occupancy.record.recipe import INF
from occupancy.record.specs import Few, record_of, value_of
from occupancy.runs import move_compact, open_run

Say = Callable[[str], None]
OWN_WORKSHOP = "analysis.study.workshops:open_workshop"


@dataclass
class Study:
    """A study in its folder, and the workshop that does its jobs."""

    folder: Path
    config: StudyConfig
    gpus: int | None = None
    """Workers, one a GPU; None: as many as there are."""
    minutes: float = INF
    """After which nothing new is begun."""
    say: Say = lambda line: None
    here: Mapping[str, Any] = field(default_factory=dict)
    """Entries of [equipment] that are this machine's own: base, workers."""
    _opened: Workshop | None = None
    _places: asyncio.Semaphore | None = None
    _pi_1: asyncio.Lock = field(default_factory=asyncio.Lock)
    _cutting: Any = field(default_factory=RLock)

    def __post_init__(self) -> None:
        self.began = monotonic()

    @property
    def first(self) -> Path:
        """D_BC."""
        return self.folder / "demonstrations" / "first"

    @property
    def at_once(self) -> int:
        """Jobs at the same time: what the workshop says, else what it is expected to say."""
        given = value_of(str(self.config.equipment.get("per_gpu", 1)), Few, "per_gpu=")
        per_gpu = 1 if self.gpus == 0 else given
        expected = (self.gpus or 1) * (1 if self.config.workshop else per_gpu * JOBS_A_WORKER)
        return int(getattr(self._opened, "at_once", expected))

    @property
    def has_place(self) -> bool:
        """Whether a job could begin at once."""
        return self._places is None or not self._places.locked()

    def workshop(self) -> Workshop:
        """Opened when the first job needs it: a study that only writes its verdict starts no engine."""
        if self._opened is None:
            opened = named_trainer(self.config.workshop or OWN_WORKSHOP, of="workshop")
            given: Any = {**self.config.equipment, **self.here}
            if not self.config.workshop:
                given = record_of(Equipment, given, of="[equipment]")
            self._opened = opened(given, self.folder, gpus=self.gpus)
            assert self._opened is not None
            log_machine(self.folder)
            self._places = asyncio.Semaphore(self.at_once)
        return self._opened

    async def close(self) -> None:
        """End the workshop, where one was opened."""
        if self._opened is not None:
            await self._opened.close()

    async def made(self, job: Job, final: Path, stage: str) -> Path:
        """The folder of a job's result, which takes the name `final` when it is whole."""
        if not final.exists():
            await self.done(job, stage, final.name)
            final.parent.mkdir(parents=True, exist_ok=True)
            played = isinstance(job, Student) and not self.config.evaluation.turns
            left_out = ("turns",) if played else ()
            await asyncio.to_thread(move_compact, open_run(job.out), final, without=left_out)
        return final

    async def done(self, job: Job, stage: str, name: str) -> Path:
        """What the workshop returns, with its seconds in the log."""
        workshop, begun = self.workshop(), job.out.exists()
        assert self._places is not None
        async with self._places:
            began = monotonic()
            needed, given = likely_s(self.folder, self.config, stage), 60 * self.minutes
            if began - self.began + needed > given:
                more = " with more --minutes" if needed > given else ""
                raise BudgetStopped(
                    f"the {self.minutes:g} minutes do not suffice for {stage} {name}, which takes about "
                    f"{needed:.3g} s: the same command{more} goes on"
                )
            job.out.parent.mkdir(parents=True, exist_ok=True)
            found = await workshop.do(job)
            if not begun:
                log_job(self.folder, stage, name, monotonic() - began)
        return found

    async def pi_1(self) -> Path:
        """The checkpoint of pi_1, trained again where it is missing."""
        out = self.folder / "work" / "students" / "pi_1"
        async with self._pi_1:
            job = Train((self.first,), self.config.seed, out, self.config.training)
            return await self.done(job, "pi_1", "pi_1")

    async def collected(self, job: Collect, stage: str, *, parts: int = 1) -> None:
        """A collection as one run folder, though its tasks are shared by several jobs."""
        if job.out.exists():
            return
        outs = [self.folder / "pieces" / f"{job.out.name}-{k}" for k in range(parts)]
        unfinished = self.folder / "pieces" / "unfinished"
        jobs = [
            replace(job, tasks=tasks, out=unfinished / out.name, settings=_share(job.settings, k, parts))
            for k, (tasks, out) in enumerate(zip(slices(job.tasks, parts), outs, strict=True))
        ]
        await every(self.made(one, out, stage) for one, out in zip(jobs, outs, strict=True))
        job.out.parent.mkdir(parents=True, exist_ok=True)
        if parts == 1:
            os.replace(outs[0], job.out)
            return
        await asyncio.to_thread(pooled, [open_run(out) for out in outs], job.out, tasks=job.tasks)
        for out in outs:
            shutil.rmtree(out)

    def cut_for(self, cell: SweepCell) -> tuple[list[Path], dict[str, Any]]:
        """Run folders that a cell's student is trained on, and what the cut cost.

        Raises DataError where the collection cannot supply it.
        """
        folder = self.folder / "work" / "cuts" / cell.name
        with self._cutting:
            whole = self._whole if cell.arm.r else self._shown
            if not folder.exists():
                with whole_folder(folder) as draft:
                    cut(whole, cell.cut_of(whole.run.recipe), draft)
            run = open_run(folder)
            made, C_tr = run.info["cut"], run.column("traces", "C_tr")
            folders = [self.first, self.own(cell.arm.pilot_traces)]
        told = {
            "C_i": made["demo_tokens"] + made["continuation_tokens"],
            "C_tr": sum(C_tr),
            "demo_tokens": made["demo_tokens"],
            "continuation_tokens": made["continuation_tokens"],
            "traces": len(C_tr),
        }
        return ([*folders, folder] if C_tr else folders), told

    def own(self, traces: str) -> Path:
        """The pilot's own traces: all, or success."""
        folder = self.folder / "work" / f"own-{traces}"
        with self._cutting:
            if not folder.exists():
                with whole_folder(folder) as draft:
                    own_traces(open_run(self.folder / "pilot"), draft, success=traces == "success")
        return folder

    @cached_property
    def _whole(self) -> Whole:
        """Collection and demonstrations together."""
        pool = self.folder / "work" / "pool"
        parts = [self.folder / "collection", self.folder / "demonstrations" / "more"]
        return Whole(open_run(pool) if pool.exists() else pooled([open_run(part) for part in parts], pool))

    @cached_property
    def _shown(self) -> Whole:
        """The demonstrations alone: what pure BC is cut from, before there is a collection and after."""
        return Whole(open_run(self.folder / "demonstrations" / "more"))


def _share(settings: Mapping[str, Any], k: int, parts: int) -> Mapping[str, Any]:
    """Settings of part k of a collection: its share of the demonstrations."""
    if not (demos := settings.get("demo_tasks")):
        return settings
    return {**settings, "demo_tasks": demos * (k + 1) // parts - demos * k // parts}


async def every(work: Iterable[Awaitable[Any]]) -> list[Any]:
    """All results; where one fails the others are finished first, and then the first failure is raised."""
    found = await asyncio.gather(*work, return_exceptions=True)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found
