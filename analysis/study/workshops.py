"""The workshop of a study: worker processes, one or more a GPU, that are started again where they die."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentloop.commands.doctor import check_gpu
from analysis.study import lines
from analysis.study.accounts import JOBS_A_WORKER
from analysis.study.jobs import Equipment, Job, to_json
from analysis.study.results import finished, sampling
from occupancy.record.errors import InputError, RunError

TRIES = 3
"""How often a job is begun before its worker's death counts as the job's fault."""


def open_workshop(equipment: Equipment, study: Path, *, gpus: int | None = None) -> Workers:
    """Worker processes for a study, started when first needed.

    Args:
        equipment: what every worker has; without a GPU its engine is transformers.
        study: the study's folder; names in run folders are relative to it, logs go to study/workers.
        gpus: GPUs, each with `equipment.per_gpu` workers; None: all. 0, or none there: one worker on the CPU.

    Raises:
        InputError: fewer GPUs than asked for, no model in `base`, or settings that cannot be read.
    """
    from sft.settings import preset

    cards = _cards()
    if gpus is not None and gpus > len(cards):
        raise InputError(f"--gpus {gpus}: this machine has {len(cards)}; ask for so many, or for 0 (CPU)")
    cards = cards[:gpus] * equipment.per_gpu
    if not cards:
        equipment, cards = replace(equipment, engine="transformers"), [""]
    check_base(equipment.base)
    preset(equipment.preset)
    sampling(equipment, equipment.base)
    return Workers(equipment, Path(study), cards)


def check_base(base: str) -> None:
    """InputError where the folder of pi_0 is no checkpoint."""
    if not (Path(base) / "config.json").is_file():
        raise InputError(f"base {base!r} holds no config.json: name the folder of a checkpoint")


@dataclass
class _Place:
    """Where a worker runs; its process may be replaced."""

    card: str
    """For CUDA_VISIBLE_DEVICES."""
    log: Path
    jobs: int = 0
    peer: lines.Peer | None = None
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)


class Workers:
    """A `Workshop`; made by `open_workshop`."""

    def __init__(self, equipment: Equipment, study: Path, cards: Sequence[str]) -> None:
        self._equipment, self._study = equipment, study
        self._places = [_Place(card, study / "workers" / f"{i}.log") for i, card in enumerate(cards)]
        # Whoever waits longest comes first.
        self._free = asyncio.Semaphore(self.at_once)
        self._closed = False

    @property
    def at_once(self) -> int:
        """Jobs that are done at the same time."""
        return JOBS_A_WORKER * len(self._places)

    @property
    def pids(self) -> list[int]:
        """Of the worker processes that run."""
        return [place.peer.pid for place in self._places if place.peer is not None and place.peer.alive]

    async def do(self, job: Job) -> Path:
        """The job's result; see `Workshop`."""
        if (found := finished(job, self._equipment, self._study)) is not None:
            return found
        async with self._free:
            deaths = 0
            while True:
                place = min(self._places, key=lambda place: place.jobs)
                place.jobs += 1
                peer = None
                try:
                    peer = await self._started(place)
                    return Path(await peer.ask(job=to_json(job)))
                except lines.WorkerDied as died:
                    # A worker that was ended for another job's sake says nothing about this one.
                    deaths += peer is None or not peer.ended
                    if peer is not None:
                        await peer.end(wait_s=0.0)
                    if deaths == TRIES:
                        raise RunError(
                            f"{job.out} could not be made in {TRIES} tries (the last one: {died}); "
                            f"{place.log} says more, and the same command goes on"
                        ) from died
                finally:
                    place.jobs -= 1

    async def close(self) -> None:
        """End the workers; what they have begun goes on with the next workshop."""
        self._closed = True
        peers = [place.peer for place in self._places if place.peer is not None]
        await asyncio.gather(*(peer.end() for peer in peers))

    async def _started(self, place: _Place) -> lines.Peer:
        async with place.starting:
            if self._closed:
                raise RunError("the workshop is closed: open another one, and what was begun goes on")
            if place.peer is None or not place.peer.alive or place.peer.ended:
                environment = {"CUDA_VISIBLE_DEVICES": place.card}
                peer = await lines.start("analysis.study.worker", log=place.log, environment=environment)
                try:
                    equipment = to_json(self._equipment)
                    await peer.ask(equipment=equipment, study=str(self._study), log=str(place.log))
                except BaseException:
                    await peer.end(wait_s=0.0)
                    raise
                place.peer = peer
            return place.peer


def _cards() -> list[str]:
    """Names of this machine's GPUs for CUDA_VISIBLE_DEVICES, which may have chosen some of them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name.strip() for name in chosen.split(",") if name.strip()]
    gpus = check_gpu()
    return [str(i) for i, _ in enumerate(gpus.found.split("; "))] if gpus.good else []
