"""kill -9 at random moments, and what is left: python -m benchmarks kill_resume [--kills 200] [--tasks 125]

A run against the mock server (student and teacher over HTTP, failures included) is killed and started again
until it ends, and compared with an uninterrupted one. The server's bill has one line an answer it was paid
for, with the seed that names the turn, so every token on it is looked for in the ledger. A task has two
proposals, four episodes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp  # noqa: F401 -- before the fork, so that kills hit the run and not its imports
from toy_world import Corridors

from agentloop.ledger.store import Ledger
from agentloop.policies.by_name import open_policy
from agentloop.policies.chat_spec import identity
from agentloop.run import units
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from agentloop.run.summary import summarise
from agentloop.run.types import seed_of
from benchmarks.mock_server import serving
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)
FAILURES = "busy=.02,server=.02,drop=.01,after=.01,malformed=.01"


@dataclass(frozen=True)
class Result:
    """What was found; raises before it is made where anything is wrong."""

    kills: int
    episodes: int
    attempts: int
    lost: int
    """Attempts that were open at a kill."""
    bill_calls: int
    bill_tokens: int
    paid_twice: int
    """Calls on the bill whose answer a kill or a failure took, and that were made again."""
    C_i: int


def kill_and_resume(folder: Path, *, kills: int, tasks: int, seed: int, delay_s: float) -> Result:
    """Run, kill, resume, compare."""
    whole = _served(folder / "whole", folder / "whole.bill", tasks, delay_s=0.0)
    rng = random.Random(seed)
    with _server(folder / "killed.bill", delay_s) as (port, _):
        hits = 0
        while hits < kills:
            child = _fork(folder / "killed", tasks, port)
            if rng.random() < 0.8:
                _wait_for_work(folder / "killed.bill", child)
            time.sleep(rng.random() * 0.3)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                sys.exit(f"the run ended after {hits} kills: use more --tasks or a longer --delay")
            hits += 1
        _, status = os.waitpid(_fork(folder / "killed", tasks, port), 0)
        assert status == 0, f"the last run ended with status {status}"
    killed = open_run(folder / "killed")
    _same(whole, killed)
    return _reconcile(killed, folder / "killed.bill", hits)


def _wait_for_work(bill: Path, child: int) -> None:
    """Return once the server has billed something more, or the process has ended."""
    before = bill.stat().st_size
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while bill.stat().st_size == before and os.waitid(os.P_PID, child, ended) is None:
        time.sleep(0.002)


def _same(whole: Run, killed: Run) -> None:
    for table in ("proposals", "episodes", "turns", "traces"):
        a, b = (
            run.read(table).drop_columns("wall_s") if table == "episodes" else run.read(table)
            for run in (whole, killed)
        )
        assert a.equals(b), f"{table} differ: {_difference(a.to_pylist(), b.to_pylist())}"
    ids = killed.read("episodes")["episode_id"].to_pylist()
    assert len(ids) == len(set(ids)), "an episode is there twice"
    one, two = summarise(whole), summarise(killed)
    for name in ("C_i", "C_tr", "traces", "proposals"):
        assert one[name] == two[name], f"{name}: {one[name]} and {two[name]}"


def _difference(one: list[dict[str, Any]], two: list[dict[str, Any]]) -> str:
    pair = next((p for p in zip(one, two, strict=False) if p[0] != p[1]), None)
    if pair is None:
        return f"{len(one)} and {len(two)} rows"
    return str({name: (pair[0][name], pair[1][name]) for name in pair[0] if pair[0][name] != pair[1][name]})


def _reconcile(run: Run, bill: Path, hits: int) -> Result:
    """Every line of the bill is a row of the ledger, and every answered row is on the bill."""
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    rows = ledger.rows()
    ledger.close()
    lines: dict[tuple[str, int], list[int]] = defaultdict(list)
    for line in bill.read_text().splitlines():
        model, _, output, turn_seed = line.split()
        lines[model, int(turn_seed)].append(int(output))
    answered: Counter[tuple[str, int]] = Counter()
    tokens: dict[tuple[str, int], int] = {}
    perhaps: Counter[tuple[str, int]] = Counter()
    for row in rows:
        key = (row["policy"].split(":")[1].split(",")[0], _turn_seed(row["episode_id"], row["t"]))
        if row["state"] in ("settled", "orphaned"):
            answered[key] += 1
            tokens[key] = row["output_tokens"]
        perhaps[key] += row["billed"] == "perhaps"
    assert set(lines) == set(answered), "the bill has a turn that the ledger lacks, or the other way round"
    for key, billed in lines.items():
        assert set(billed) == {tokens[key]}, f"{key}: billed {billed}, ledger {tokens[key]}"
        assert answered[key] == 1, f"{key} was answered and bought {answered[key]} times"
        assert 1 <= len(billed) <= 1 + perhaps[key], f"{key}: billed {len(billed)} times, ledger says fewer"
    spent = sum(map(sum, lines.values()))
    twice = sum(len(billed) - 1 for billed in lines.values())
    again = sum((len(billed) - 1) * tokens[key] for key, billed in lines.items())
    assert spent == sum(row["output_tokens"] or 0 for row in rows) + again
    summary = summarise(run)
    return Result(
        hits,
        len(run.read("episodes")),
        len(rows),
        summary["lost_attempts"],
        sum(map(len, lines.values())),
        spent,
        twice,
        summary["C_i"],
    )


def _turn_seed(episode_id: str, t: int) -> int:
    """The seed that was sent with a turn, from its key."""
    task, _, rest = episode_id.partition("#")
    kind, _, numbers = rest.partition("-")
    rollout, _, continuation, replicate = (-1 if n == "x" else int(n) for n in numbers.split("-"))
    return seed_of(0, task, kind, rollout, continuation, 0, replicate, t) % 2**31


def _collect(folder: Path, tasks: int, port: int) -> None:
    units.COMMIT_EVERY_S = 0.05  # so that kills hit commits too

    async def run() -> None:
        base = f"http://127.0.0.1:{port}/v1,max_tokens=64"
        names = {who: f"openai:{who}-m@{base}" for who in ("student", "teacher")}
        worlds = Corridors(workers=16)
        policies = {who: open_policy(name, worlds) for who, name in names.items()}
        settings = Settings(
            recipe=RECIPE, tasks=str(tasks), **{who: identity(name) for who, name in names.items()}
        )
        spending = SpendingLimits(backoff_s=0.01)
        await collect(folder, Setup(settings, worlds, spending=spending, **policies))
        for policy in policies.values():
            await policy.close()  # type: ignore[attr-defined]

    asyncio.run(run())


def _fork(folder: Path, tasks: int, port: int) -> int:
    """A process of its own that collects; forked, so that no kill waits for imports."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _collect(folder, tasks, port)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def _served(folder: Path, bill: Path, tasks: int, *, delay_s: float) -> Run:
    with _server(bill, delay_s) as (port, _):
        _, status = os.waitpid(_fork(folder, tasks, port), 0)
    assert status == 0, f"the uninterrupted run ended with status {status}"
    return open_run(folder)


def _server(bill: Path, delay_s: float) -> AbstractContextManager[tuple[int, int]]:
    return serving("--bill", str(bill), "--delay", str(delay_s), "--fail", FAILURES)


def main(kills: int = 200, tasks: int = 125, seed: int = 1, delay: float = 0.3) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = kill_and_resume(Path(place), kills=kills, tasks=tasks, seed=seed, delay_s=delay)
    print(json.dumps(asdict(found)))
