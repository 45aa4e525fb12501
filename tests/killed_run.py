"""A run on the toy world that is killed at random moments; also run in full by benchmarks/.

`python tests/killed_run.py FOLDER` collects; with a number of calls of the teacher it says so at that call,
goes on a little, and then waits to be killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from toy_world import Corridors, drunk, expert

from agentloop.run import units
from agentloop.run.collect import Settings, Setup, collect
from agentloop.types import Answer, Ask
from occupancy.record.recipe import preset

SETTINGS = Settings(
    recipe=preset("op-short", K="inf", n=2, T_max=12),
    student="drunk",
    teacher="expert",
    tasks="12",
    pilot=True,
)


FURTHER = 12
"""Calls after the one at which a run may be killed. It has 111, so four kills never find it ended."""


def collect_into(folder: Path, *, told_at: int = 0) -> None:
    units.COMMIT_EVERY_S = 0.0  # much is written
    calls = count(1)

    async def slow_expert(ask: Ask) -> Answer:
        call = next(calls)
        if call == told_at:
            sys.stdout.write("now\n")
            sys.stdout.flush()
        if 0 < told_at <= call - FURTHER:
            await asyncio.Event().wait()
        await asyncio.sleep(0.003)
        return await expert(ask)

    asyncio.run(collect(folder, Setup(SETTINGS, Corridors(), drunk, slow_expert)))


def collect_under_fire(folder: Path, *, kills: int, seed: int) -> int:
    """Start the run again and again, kill -9 it `kills` times, let it end; returns the kills that hit."""
    rng, hits = random.Random(seed), 0
    for _ in range(kills):
        command = [sys.executable, __file__, str(folder), str(rng.randrange(1, 12))]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.random() * 0.05)
            os.kill(process.pid, signal.SIGKILL)
        hits += process.returncode == -signal.SIGKILL
    subprocess.run([sys.executable, __file__, str(folder)], check=True)
    return hits


if __name__ == "__main__":
    collect_into(Path(sys.argv[1]), told_at=int((*sys.argv, "0")[2]))
