"""Resident memory of one worker process that plays many different ALFWorld games.

    FEWSTEPS_DATA=... python -m benchmarks alfworld_memory --games 500

In every game the scripted expert plays ten turns, which are then replayed. Linux only: reads /proc.
"""

from __future__ import annotations

import asyncio

from agentloop.environments.alfworld.expert import scripted_expert
from agentloop.environments.alfworld.pool import open_alfworld
from agentloop.run.episode import EpisodeSettings, play, start
from agentloop.run.replay import replay
from agentloop.types import Author
from benchmarks.busy import memory_mb

LIMIT_MB = 400


async def one_worker(spec: str, *, every: int = 50) -> list[tuple[int, float, float]]:
    """(games played, resident MB, peak MB) after every `every` games and after the last, in one process."""
    pool = open_alfworld(workers=1)
    measured, pids = [], set()
    try:
        tasks = pool.tasks(spec)
        for played, task in enumerate(tasks, start=1):
            async with pool.open(task) as env:
                begin = await start(env, seed=0)
                how = EpisodeSettings(author=Author.TEACHER, most=10, T_max=50, seeds=lambda t: t)
                part = await play(env, scripted_expert(), begin, how)
                await replay(env, part.history, seed=0)
                pids.add(env.worker.pid)
                if played % every == 0 or played == len(tasks):
                    measured.append((played, memory_mb(env.worker.pid), memory_mb(env.worker.pid, "VmHWM")))
    finally:
        await pool.close()
    if len(pids) > 1:
        raise RuntimeError(f"{len(pids)} worker processes played: the memory of one was to be measured")
    return measured


def main(games: int = 500) -> None:
    print("games   resident MB   peak MB")
    measured = asyncio.run(one_worker(f"train:{games}"))
    for played, now, peak in measured:
        print(f"{played:5}   {now:11.0f}   {peak:7.0f}")
    verdict = "under" if measured[-1][2] < LIMIT_MB else "OVER"
    print(f"peak {verdict} {LIMIT_MB} MB")
