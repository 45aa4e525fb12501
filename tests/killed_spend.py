"""`spend` in the toy world, slow enough to be killed in the middle; its buyer is the product's own.

`python tests/killed_spend.py FOLDER` goes on with the purchase in FOLDER, which `prepare` has begun; with a
second argument it never ends the last training, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from toy_world import expert

from agentloop.run import units
from agentloop.run.plan_file import read_plan
from agentloop.types import Answer, Ask
from analysis.cli import main
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.trainer import Effort
from analysis.spend.buyer import ProductBuyer
from analysis.spend.rounds import Rounds, spend
from occupancy.runs import open_run

LAST = "own-pilot"
"""In the name of the last training."""


async def slow_expert(ask: Ask) -> Answer:
    await asyncio.sleep(0.01)
    return await expert(ask)


class School:
    """Trains nobody, and takes its time."""

    tasks = "valid:8"

    def __init__(self, folder: Path, *, ends: bool) -> None:
        self._folder, self._ends = folder, ends

    def train(self, folders: list[Path], student: Path, *, seed: int, log: Path) -> str:
        self._work(student.name)
        return "drunk"

    def __call__(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
        self._work(f"{folders[0].parent.name}-{folders[0].name}-{seed}")
        return {f"valid/{i}": [float(i % 2)] for i in range(8)}

    def _work(self, name: str) -> None:
        with (self._folder / "trained.txt").open("a") as marks:
            marks.write(f"{name}\n")
        while LAST in name and not self._ends:
            time.sleep(60)
        time.sleep(0.5)


def prepare(folder: Path) -> float:
    """A pilot and a plan; returns what may be bought beside the pilot."""
    where = ["--env", "streets:open_streets", "--env-set", "town=here", "--out", f"{folder}/pilot"]
    who = ["--student", "drunk", "--teacher", "killed_spend:slow_expert", "--tasks", "train:24", "--pilot"]
    assert main(["collect", *where, *who, "--demo-tasks", "12", "--replicates", "1"]) == 0
    price = sum(teacher_tokens(folder / "pilot"))
    assert main(["plan", f"{folder}/pilot", "--budget", f"{6 * price}", "--out", f"{folder}/PLAN.toml"]) == 0
    return 5.0 * price


def go_on(folder: Path, *, ends: bool) -> dict[str, Any]:
    units.COMMIT_EVERY_S = 0.0  # parts tell the killer how far the run is
    plan = read_plan(folder / "PLAN.toml")
    school: Any = School(folder, ends=ends)
    # Every arm buys both, so that there is a purchase of each kind.
    import analysis.spend.rounds as own

    arms = own.arms_of
    own.arms_of = lambda T, **more: [replace(arm, r=0.5) for arm in arms(T, **more) if 0 < arm.r < 1]
    buyer = ProductBuyer(plan, read_pilot(plan.pilot), school)
    pilot = open_run(plan.pilot)
    return spend(
        Rounds(pilot, folder / "out", plan.budget, buyer, school, "toy", effort=Effort(1), progress=print)
    )


def killed_when(folder: Path, happens: Callable[[], bool]) -> bool:
    """Whether the process, started anew, was killed -9 once `happens` was seen, before it ended."""
    command = [sys.executable, __file__, str(folder), "waits"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None and not happens():
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


if __name__ == "__main__":
    go_on(Path(sys.argv[1]), ends=len(sys.argv) == 2)
