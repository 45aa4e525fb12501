"""Turns a second of the loop itself: python -m benchmarks agentloop_throughput [--turns 20000]

in process   student and teacher answer at once; ledger, rows and Parquet included
HTTP         the same episodes against the mock server in a process of its own, and what the parts of a call
             cost: the client library, our ledger, the server
memory       resident bytes over the run: flat means that the last quarter needs no more than the second
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toy_world import Corridors, drunk, expert

from agentloop.policies.by_name import open_policy
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from agentloop.types import Ask, Message, Policy, Task
from benchmarks.busy import cpu_s, memory_mb
from benchmarks.mock_server import serving
from occupancy.record.recipe import preset

RECIPE = preset("op-short", K="inf", n=1, T_max=12)


class ManyCorridors(Corridors):
    """Corridors by the thousand."""

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        return [Task(f"corridor/{i}", f"corridor/{i}", "train") for i in range(int(spec))]


def measure(
    student: Policy, teacher: Policy, folder: Path, *, tasks: int, at_once: int, close: Sequence[Any] = ()
) -> dict[str, float]:
    """Collect, and count turns, seconds and memory."""
    resident: list[float] = []
    turns = {"student": 0, "teacher": 0}

    def progress(done: int, total: int, rows: Any) -> None:
        resident.append(memory_mb())
        for row in rows.get("turns", ()):
            turns[row["author"]] += 1

    async def run() -> None:
        settings = Settings(recipe=RECIPE, student="drunk", teacher="expert", tasks=str(tasks))
        worlds = ManyCorridors(workers=at_once)
        spending = SpendingLimits(budget=10**12, turn_tokens=64)
        await collect(folder, Setup(settings, worlds, student, teacher, spending), progress=progress)
        for policy in close:
            await policy.close()

    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(run())
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    played = sum(turns.values())
    quarter = max(len(resident) // 4, 1)
    return {
        "turns": played,
        "teacher_turns": turns["teacher"],
        "turns_per_s": played / wall,
        "turns_per_cpu_s": played / cpu,
        "wall_s": wall,
        "cpu_s": cpu,
        "resident_second_quarter_MB": max(resident[quarter : 2 * quarter] or resident),
        "resident_last_quarter_MB": max(resident[-quarter:]),
        "peak_MB": memory_mb(field="VmHWM"),
    }


def over_http(folder: Path, *, tasks: int, at_once: int) -> dict[str, Any]:
    """The loop through the HTTP policy, then the parts of a call, one after another."""
    with serving() as (port, pid):
        base = f"http://127.0.0.1:{port}/v1,max_tokens=64"
        worlds = ManyCorridors()
        student, teacher = (open_policy(f"openai:{who}@{base}", worlds) for who in ("student-m", "teacher-m"))
        before = cpu_s(pid)
        found: dict[str, Any] = measure(
            student, teacher, folder, tasks=tasks, at_once=at_once, close=(student, teacher)
        )
        found["server_cpu_ms_a_turn"] = 1e3 * (cpu_s(pid) - before) / found["turns"]
        found["loop_cpu_ms_a_turn"] = 1e3 * found["cpu_s"] / found["turns"]
        bare = open_policy(f"openai:teacher-m@{base}", worlds)
        found["client_cpu_ms_a_call"] = 1e3 * asyncio.run(_bare(bare, calls=2000, at_once=at_once))
    return found


async def _bare(policy: Policy, *, calls: int, at_once: int) -> float:
    """CPU seconds of a call of the policy alone, without loop and ledger."""
    env: Any = None
    context = tuple(Message("user", f"You are at {i} of 9.", "environment") for i in range(8))
    waiting = iter(range(calls))

    async def worker() -> None:
        for i in waiting:
            await policy(Ask(context, 1, i, env))

    began = time.process_time()
    await asyncio.gather(*(worker() for _ in range(at_once)))
    spent = time.process_time() - began
    await policy.close()  # type: ignore[attr-defined]
    return spent / calls


def main(turns: int = 20_000, http_turns: int = 5_000, at_once: int = 256) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, tasks = Path(folder), turns // 9  # a rollout and what the teacher adds
        found: dict[str, Any] = {
            "load_average": os.getloadavg()[0],
            "cores": len(os.sched_getaffinity(0)),
            "in_process": measure(drunk, expert, place / "in", tasks=tasks, at_once=at_once),
            "all_teacher": measure(expert, expert, place / "teacher", tasks=tasks, at_once=at_once),
        }
        if http_turns:
            found["http"] = over_http(place / "http", tasks=http_turns // 9, at_once=at_once)
    print(json.dumps(found, indent=2))
