"""HotpotQA's loop: how often the scripted teacher and student are right, and how many episodes a second.

    FEWSTEPS_DATA=... python -m benchmarks hotpotqa_loop

Episodes per CPU second of one process. `evaluate` writes every turn; `collect` also draws, replays, judges
and keeps the ledger.
"""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
import time
from datetime import date
from pathlib import Path

from agentloop.environments.hotpotqa.environment import HotpotQA, open_hotpotqa
from agentloop.policies.by_name import open_policy
from agentloop.run.collect import Settings, Setup, collect
from agentloop.run.evaluate import Evaluation, evaluate, summarise_evaluation
from benchmarks.hotpotqa_search import machine
from occupancy.record.recipe import preset
from occupancy.runs import Run


def main(repeats: int = 3) -> None:
    print(f"{date.today()}, {machine()}, Python {platform.python_version()}")
    made = open_hotpotqa()
    print(made.version)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for policy, tasks, attempts in (
            ("teacher", "train", 1),
            ("teacher", "test", 1),
            ("scripted", "train", 1),
            ("scripted", "test", 8),
        ):
            evaluated(folder / f"{policy}-{tasks}", made, policy, tasks, attempts)
        for i in range(repeats):
            evaluated(folder / f"again-{i}", made, "scripted", "paper-train", 3)
        for i in range(repeats):
            collected(folder / f"collect-{i}", made, K=3)


def evaluated(folder: Path, made: HotpotQA, policy: str, tasks: str, attempts: int) -> None:
    settings = Evaluation(policy, tasks, attempts)
    began, clock = time.process_time(), time.perf_counter()
    run = asyncio.run(evaluate(folder, settings, environments=made, policy=open_policy(policy, made)))
    spent = rate(run, began, clock)
    found = summarise_evaluation(run)["success"]
    over = found["evaluation_se"]
    print(
        f"evaluate {policy} on {tasks}, {attempts} times: exact match {found['mean']:.4f}, SE by question "
        f"{found['cluster_se']:.4f}, over evaluations {'-' if over is None else f'{over:.4f}'}; {spent}"
    )


def collected(folder: Path, made: HotpotQA, *, K: int) -> None:
    settings = Settings(
        preset("op-short", n=3, K=K, T_max=5, teacher="teacher"),
        student="scripted",
        teacher="teacher",
        tasks="paper-train",
    )
    began, clock = time.process_time(), time.perf_counter()
    student, teacher = open_policy("scripted", made), open_policy("teacher", made)
    run = asyncio.run(collect(folder, Setup(settings, made, student, teacher)))
    print(f"collect op-short K={K}, n=3 on paper-train: {rate(run, began, clock)}")


def rate(run: Run, began: float, clock: float) -> str:
    cpu, wall = time.process_time() - began, time.perf_counter() - clock
    episodes = len(run.read("episodes", columns=["task_id"]))
    return (
        f"{episodes} episodes, {episodes / cpu:.0f} per CPU second, {episodes / wall:.0f} per second by the "
        f"clock (load average {os.getloadavg()[0]:.1f})"
    )
