"""The terminal sandbox: times of start, command and fork; leaks after many starts; replays of prefixes.

    FEWSTEPS_DATA=... python -m benchmarks terminal_sandbox --starts 1000 --at-once 16 --prefixes 50

Times are medians of wall seconds with the 90 % quantile, over `--repeats` sandboxes one at a time; the load
average is printed beside them. Then `--starts` sandboxes are started, `--at-once` at a time, each with
processes that outlive their command, and what is left afterwards is counted. Then `--prefixes` episodes of
the scripted student are cut at a random turn and played again: every observation and every hash of the
changed files is compared. Each of the three numbers may be 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from agentloop.environments.terminal.benchmark import Terminal, open_terminal
from agentloop.environments.terminal.sandbox.images import open_image
from agentloop.environments.terminal.sandbox.launch import Layers
from agentloop.environments.terminal.sandbox.limits import left_groups
from agentloop.environments.terminal.sandbox.sandbox import Sandbox, open_sandbox
from agentloop.environments.terminal.terminus.screen import open_screen
from agentloop.run.episode import EpisodeSettings, play, start
from agentloop.run.replay import ReplayDesync, replay
from agentloop.types import Author


def told(seconds: Sequence[float]) -> dict[str, float]:
    """Median and 90 % quantile in milliseconds."""
    cuts = statistics.quantiles(seconds, n=10)
    return {"median_ms": round(1000 * statistics.median(seconds), 1), "p90_ms": round(1000 * cuts[-1], 1)}


async def timed(action: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await action()
    return time.perf_counter() - started


async def times(layers: Layers, *, repeats: int) -> dict[str, dict[str, float]]:
    """Wall times of one sandbox at a time."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(repeats):
            began = time.perf_counter()
            async with open_sandbox(layers) as sandbox:
                found.setdefault("start", []).append(time.perf_counter() - began)
                found.setdefault("command", []).append(await timed(lambda s=sandbox: s.run("true")))
                await sandbox.run("mkdir /d; for i in $(seq 200); do echo $i > /d/$i; done")
                place = Path(folder, str(number))
                began = time.perf_counter()
                forked = await sandbox.snapshot(place)
                found.setdefault("snapshot of 200 files", []).append(time.perf_counter() - began)
                began = time.perf_counter()
                async with open_sandbox(forked):
                    found.setdefault("fork", []).append(time.perf_counter() - began)
                began = time.perf_counter()
                screen = await open_screen(sandbox)
                found.setdefault("terminal", []).append(time.perf_counter() - began)
                found.setdefault("type", []).append(await timed(lambda s=screen: s.type("ls\n", 0)))
                found.setdefault("read the screen", []).append(await timed(screen.output))
                ended = time.perf_counter()
            found.setdefault("stop", []).append(time.perf_counter() - ended)
    return {name: told(seconds) for name, seconds in found.items()}


def counted() -> dict[str, int]:
    """What could be left: mounts, processes, control groups, folders, descriptors of this process."""
    return {
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "processes": sum("fewsteps-" in command for command in commands()),
        "groups": len(left_groups(f"{os.getpid()}-")),
        "folders": len(list(Path(tempfile.gettempdir()).glob(f"fewsteps-{os.getpid()}-*"))),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def commands() -> list[str]:
    """Command lines of all processes in the present process namespace's sandboxes."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [command for command in found if f"fewsteps-{os.getpid()}-" in command]


async def many(layers: Layers, *, starts: int, at_once: int) -> dict[str, Any]:
    """Start many sandboxes and count what is left of them."""
    free = asyncio.Semaphore(at_once)

    async def one(number: int) -> bool:
        async with free, open_sandbox(layers) as sandbox:
            return await busy(sandbox, number)

    await one(-1)
    before, began = counted(), time.perf_counter()
    worked = await asyncio.gather(*(one(number) for number in range(starts)))
    seconds = time.perf_counter() - began
    after = counted()
    return {
        "starts": starts,
        "at_once": at_once,
        "worked": sum(worked),
        "seconds": round(seconds, 1),
        "left": {name: after[name] - before[name] for name in before},
    }


async def busy(sandbox: Sandbox, number: int) -> bool:
    """Leave processes and files behind, and look whether the sandbox answers."""
    await sandbox.run("sleep 1000 & (setsid sleep 1000 >/dev/null 2>&1 &); touch /made /usr/made")
    return (await sandbox.run(f"echo {number}")).output == f"{number}\n".encode()


async def replays(benchmark: Terminal, *, prefixes: int, seed: int) -> dict[str, Any]:
    """Play recorded prefixes again and compare every observation and every state."""
    rng = random.Random(seed)
    student = benchmark.policy("scripted:blunder=0.4,stray=0.15,malformed=0.1")
    assert student is not None
    tasks = [rng.choice(benchmark.tasks("all")) for _ in range(prefixes)]
    cuts = [rng.randrange(1, 7) for _ in tasks]

    async def one(number: int) -> tuple[int, str]:
        task, cut = tasks[number], cuts[number]
        how = EpisodeSettings(Author.STUDENT, cut, benchmark.T_max, lambda t: 1000 * number + t)
        async with benchmark.open(task) as env:
            recorded = (await play(env, student, await start(env, seed=0), how)).history
        async with benchmark.open(task) as env:
            try:
                await replay(env, recorded, seed=0)
            except ReplayDesync as error:
                return len(recorded.turns), f"{task.task_id}: {error}"
        return len(recorded.turns), ""

    results = await asyncio.gather(*(one(number) for number in range(prefixes)))
    return {
        "prefixes": prefixes,
        "turns": sum(turns for turns, _ in results),
        "different": [why for _, why in results if why],
    }


async def main(
    *,
    image: str = "host",
    repeats: int = 30,
    starts: int = 1000,
    at_once: int = 16,
    prefixes: int = 50,
    workers: int = 4,
) -> None:
    layers = open_image(image).layers
    found: dict[str, Any] = {"load": os.getloadavg()[0], "image": open_image(image).name}
    if repeats:
        found["times"] = await times(layers, repeats=repeats)
    if starts:
        found["many"] = await many(layers, starts=starts, at_once=at_once)
    if prefixes:
        benchmark = open_terminal(workers=workers, image=image)
        found["replays"] = await replays(benchmark, prefixes=prefixes, seed=0)
    found["load_at_the_end"] = os.getloadavg()[0]
    print(json.dumps(found, indent=1))
