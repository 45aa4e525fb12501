"""`fewsteps serve`: CPU a call, calls a second at 64 concurrent episodes, and memory over many calls.

    python -m benchmarks serve_calls --calls 20000 --at-once 64

A harness in a second process plays corridors; student and teacher answer at once, so that what is measured is
the endpoint with its ledger, journal and run folder. One line a thousand calls: rate, CPU, resident memory.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from agentloop.run.settings import Settings
from agentloop.run.types import Setup
from agentloop.serve.desk import Desk, Harness
from agentloop.serve.run import serve
from agentloop.serve.server import answering
from agentloop.serve.settings import Serving
from agentloop.types import Answer, Ask, Usage
from benchmarks.busy import memory_mb
from occupancy.record.recipe import preset

TURNS = 10
"""Of an episode."""


async def walk(ask: Ask) -> Answer:
    return Answer("I go on along the corridor. " * 8, Usage(60, "toy"))


async def play(session: aiohttp.ClientSession, address: str, task: int, nth: int) -> int:
    """One episode; the calls that it made."""
    key = f"{task}-{nth}"
    messages: list[dict[str, str]] = [
        {"role": "user", "content": f"Corridor {task}. " + "Walk to its end. " * 20}
    ]
    for t in range(TURNS):
        body = {"model": "any", "messages": messages}
        async with session.post(f"{address}/episodes/{key}/v1/chat/completions", json=body) as response:
            given = await response.json()
            if response.status != 200:
                return t
        said = given["choices"][0]["message"]["content"]
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"You are at {t + 1}. " + "The walls are grey. " * 10},
        ]
    async with session.post(f"{address}/episodes/{key}/reward", json={"reward": 1.0}) as response:
        await response.read()
    return TURNS


def harness(address: str, calls: int, at_once: int, told: Any) -> None:
    """Play tasks twice each until so many calls were made."""

    async def run() -> None:
        made, task = 0, 0
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def player() -> None:
                nonlocal made, task
                while made < calls:
                    mine, task = task, task + 1
                    for nth in range(2):
                        n = await play(session, address, mine, nth)
                        made += n
                    told.put(made)

            await asyncio.gather(*(player() for _ in range(at_once)))
            async with session.post(f"{address}/close") as response:
                await response.read()

    asyncio.run(run())


async def measured(folder: Path, calls: int, at_once: int) -> None:
    told = multiprocessing.get_context("spawn").Queue()
    processes: list[Any] = []
    begun: list[float] = []

    @asynccontextmanager
    async def answer(desk: Desk, stop: asyncio.Event) -> AsyncIterator[None]:
        async def watch() -> None:
            shown = 0
            while True:
                await asyncio.sleep(0.2)
                made = 0
                while not told.empty():
                    made = told.get()
                if made and not begun:
                    begun[:] = [time.perf_counter(), time.process_time(), made]
                elif made >= shown + 1000:
                    shown = made
                    wall, cpu, n = (
                        time.perf_counter() - begun[0],
                        time.process_time() - begun[1],
                        made - begun[2],
                    )
                    line = {
                        "calls": made,
                        "calls_per_s": round(n / wall),
                        "cpu_ms_a_call": round(1000 * cpu / n, 2),
                        "resident_mb": round(memory_mb(), 1),
                    }
                    print(json.dumps(line), flush=True)

        watching = asyncio.create_task(watch())
        async with answering(desk, serving) as address:
            context = multiprocessing.get_context("spawn")
            processes.append(context.Process(target=harness, args=(address, calls, at_once, told)))
            processes[0].start()
            yield
            watching.cancel()

    serving = Serving(port=0)
    recipe = preset("op-short", K=3, T_max=TURNS)
    setup = Setup(Settings(recipe, "walk", "walk", "harness"), Harness("bench", TURNS), walk, walk)
    await serve(folder, setup, serving, answer)
    processes[0].join()


async def main(calls: int = 20_000, at_once: int = 64) -> None:
    print(json.dumps({"machine": platform.processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}))
    with tempfile.TemporaryDirectory() as folder:
        await measured(Path(folder), calls, at_once)
