"""Turns a second of the loop itself: python benchmarks/agentloop_throughput.py [--turns 20000] [--json FILE]

in process   student and teacher answer at once; ledger, rows and Parquet included
HTTP         the same episodes against the mock server in a process of its own, and what the parts of a call
             cost: the client library, our ledger, the server
memory       resident bytes over the run: flat means that the last quarter needs no more than the second
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from toy_world import Corridors, drunk, expert

from agentloop.policies.by_name import open_policy
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from agentloop.types import Ask, Message, Policy, Task
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
    resident: list[int] = []
    turns = {"student": 0, "teacher": 0}

    def progress(done: int, total: int, rows: Any) -> None:
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
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
        "resident_second_quarter_MB": max(resident[quarter : 2 * quarter] or resident) / 1e6,
        "resident_last_quarter_MB": max(resident[-quarter:]) / 1e6,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def over_http(folder: Path, *, tasks: int, at_once: int) -> dict[str, Any]:
    """The loop through the HTTP policy, then the parts of a call, one after another."""
    command = [sys.executable, str(ROOT / "benchmarks" / "mock_server.py")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    base = f"http://127.0.0.1:{int(server.stdout.readline())}/v1,max_tokens=64"
    try:
        worlds = ManyCorridors()
        student, teacher = (open_policy(f"openai:{who}@{base}", worlds) for who in ("student-m", "teacher-m"))
        before = _cpu_of(server.pid)
        found: dict[str, Any] = measure(
            student, teacher, folder, tasks=tasks, at_once=at_once, close=(student, teacher)
        )
        found["server_cpu_ms_a_turn"] = 1e3 * (_cpu_of(server.pid) - before) / found["turns"]
        found["loop_cpu_ms_a_turn"] = 1e3 * found["cpu_s"] / found["turns"]
        bare = open_policy(f"openai:teacher-m@{base}", worlds)
        found["client_cpu_ms_a_call"] = 1e3 * asyncio.run(_bare(bare, calls=2000, at_once=at_once))
    finally:
        server.kill()
        server.communicate()
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


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--turns", type=int, default=20_000, help="about so many, in process")
    arguments.add_argument("--http-turns", type=int, default=5_000)
    arguments.add_argument("--at-once", type=int, default=256)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as place:
        # A task has about 9 turns: a rollout and what the teacher adds.
        found: dict[str, Any] = {
            "load_average": os.getloadavg()[0],
            "cores": len(os.sched_getaffinity(0)),
            "in_process": measure(
                drunk, expert, Path(place) / "in", tasks=given.turns // 9, at_once=given.at_once
            ),
            "all_teacher": measure(
                expert, expert, Path(place) / "teacher", tasks=given.turns // 9, at_once=given.at_once
            ),
        }
        if given.http_turns:
            found["http"] = over_http(
                Path(place) / "http", tasks=given.http_turns // 9, at_once=given.at_once
            )
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
