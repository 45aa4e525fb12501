"""A run on the toy world that is killed at random moments; also run in full by benchmarks/.

`python tests/killed_run.py FOLDER` collects, slowly enough to be killed in the middle.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
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


async def slow_expert(ask: Ask) -> Answer:
    await asyncio.sleep(0.003)
    return await expert(ask)


def collect_into(folder: Path) -> None:
    units.COMMIT_EVERY_S = 0.0  # parts tell the killer how far the run is
    asyncio.run(collect(folder, Setup(SETTINGS, Corridors(), drunk, slow_expert)))


def collect_under_fire(folder: Path, *, kills: int, seed: int) -> int:
    """Start the run again and again, kill -9 it `kills` times, let it end; returns the kills that hit."""
    rng, hits = random.Random(seed), 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, __file__, str(folder)])
        wanted = parts(folder) + rng.randrange(0, 4)
        while process.poll() is None and (parts(folder) < wanted or not folder.exists()):
            time.sleep(0.001)
        time.sleep(rng.random() * 0.05)
        os.kill(process.pid, signal.SIGKILL)
        hits += process.wait() == -signal.SIGKILL
    subprocess.run([sys.executable, __file__, str(folder)], check=True)
    return hits


def parts(folder: Path) -> int:
    return len(list(folder.glob("parts/[0-9]*")))


if __name__ == "__main__":
    collect_into(Path(sys.argv[1]))
