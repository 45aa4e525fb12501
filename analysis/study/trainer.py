"""The trainer process of a worker: PyTorch is loaded once, then one training after another.

A worker starts it as `python -m analysis.study.trainer` and asks as `analysis.study.lines` says.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from agentloop.render import LengthRule, Overflow, load_codec
from agentloop.render.traces import Rendering
from analysis.study.jobs import Equipment, Train, from_json
from analysis.study.lines import serve
from analysis.study.results import finish


class Trainer:
    """Does `Train` jobs, with what does not change between them."""

    def __init__(self, equipment: Equipment, study: Path) -> None:
        self._equipment, self._study = equipment, study
        self._rendering: Rendering | None = None

    def train(self, job: Train) -> str:
        """Train, leave the chosen checkpoint alone, and return its folder."""
        import torch

        from sft.on_runs import train_on_runs
        from sft.settings import preset

        equipment = self._equipment
        if self._rendering is None:
            self._rendering = Rendering(load_codec(equipment.base))
        settings = preset(equipment.preset).replace(**job.settings, seed=job.seed)
        rule = LengthRule(settings.row_tokens, equipment.turn_tokens or None, Overflow(equipment.overflow))
        if (job.out / "settings.json").exists():
            # It has no state to go on from.
            shutil.rmtree(job.out)
        started = time.monotonic()
        try:
            found = train_on_runs(
                job.folders,
                base=equipment.base,
                codec=self._rendering,
                settings=settings,
                out=job.out,
                rule=rule,
                only_result=True,
            )
        finally:
            gc.collect()
            if torch.cuda.is_available():
                # The engine beside it has asked for its memory; what is kept here is for nobody.
                torch.cuda.empty_cache()
        seconds = {"train": time.monotonic() - started, "gpu": found.trained.gpu_s}
        result = found.trained.chosen
        finish(job, equipment, self._study, result=result, seconds=seconds, training=found.row)
        return str(result)


async def main() -> None:
    """Answer until the worker has gone."""
    # Trainings follow one another in one thread: a device is chosen by thread.
    thread = ThreadPoolExecutor(1, "train")
    made: list[Trainer] = []

    async def answer(request: dict[str, Any]) -> str | None:
        loop = asyncio.get_running_loop()
        if "equipment" in request:
            made[:] = [Trainer(Equipment(**request["equipment"]), Path(request["study"]))]
            await loop.run_in_executor(thread, import_module, "sft.on_runs")  # which takes seconds
            return None
        job = from_json(request["job"])
        assert isinstance(job, Train)
        return await loop.run_in_executor(thread, made[0].train, job)

    await serve(answer)
    # A training that nobody waits for has no result.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
