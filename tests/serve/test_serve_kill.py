"""A server that is killed in mid-episode gives the same answers again, and nothing is bought twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

import aiohttp
from corridor_harness import Client
from toy_runs import attempts, rows, same
from waiting import HANG_S, held_port

from benchmarks.mock_server import Mock
from occupancy.runs import open_run

PROVIDERS, HARNESSES = "key-of-the-provider", "key-of-the-harness"
TASKS = {f"corridor/{i}": 2 + i % 5 for i in range(5)}


class Patient(Client):
    """Repeats a call until it is answered, as clients of chat-completions servers do."""

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        while True:
            try:
                status, got = await super().post(path, body, **headers)
            except aiohttp.ClientError:
                status, got = 503, {}
            if status != 503:
                return status, got
            await asyncio.sleep(0.02)

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        while True:
            try:
                return await super().get(path, **headers)
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)


async def _start(folder: Path, port: int, models: str) -> asyncio.subprocess.Process:
    command = f"serve {folder} --port {port} --recipe op-short --set K=3 --set n=2 --set T_max=12 --seed 3"
    named = [f"--{who}=openai:{who}@{models},max_tokens=64" for who in ("student", "teacher")]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "analysis.cli", *command.split(), *named),
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "OPENAI_API_KEY": PROVIDERS},
    )


async def _played(folder: Path, *, kills: int, seed: int) -> tuple[Mock, int]:
    """A run that is killed `kills` times while it is played; its models, and the kills that hit."""
    mock = Mock(delay_s=0.01)
    models = await mock.serve()
    address = f"http://127.0.0.1:{models.sockets[0].getsockname()[1]}/v1"
    async with asyncio.timeout(HANG_S):
        with held_port() as port:
            hits = await _killed(folder, port, mock, address, random.Random(seed).sample(range(8, 30), kills))
    models.close()
    return mock, hits


async def _killed(folder: Path, port: int, mock: Mock, address: str, kills: list[int]) -> int:
    """The kills that hit, each after so many further calls of a model."""
    hits = 0
    process = await _start(folder, port, address)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(HANG_S)) as session:
        harness = Patient(f"http://127.0.0.1:{port}", session, {"Authorization": f"Bearer {HARNESSES}"})
        playing = asyncio.create_task(harness.all_needed(TASKS))
        for calls in kills:
            before = mock.requests
            while mock.requests < before + calls and not playing.done():
                await asyncio.sleep(0.002)
            if playing.done():
                break
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            hits += 1
            process = await _start(folder, port, address)
        ended = asyncio.create_task(process.wait())
        await asyncio.wait([playing, ended], return_when=asyncio.FIRST_COMPLETED)
        assert not ended.done(), "the server ended by itself"
        await playing
        await harness.post("/close", {})
        assert await ended == 0
    return hits


@pytest.mark.slow
def test_kill_9_loses_no_settled_call_and_buys_nothing_twice(tmp_path: Path) -> None:
    asyncio.run(_played(tmp_path / "whole", kills=0, seed=0))
    mock, hits = asyncio.run(_played(tmp_path / "killed", kills=3, seed=1))
    assert hits == 3, "the run ended before it was killed"
    whole, killed = open_run(tmp_path / "whole"), open_run(tmp_path / "killed")
    same(killed, whole, calls=False)
    calls = attempts(killed)
    states = Counter(call["state"] for call in calls)
    assert set(states) <= {"settled", "lost"}
    settled = [(c["episode_id"], c["t"]) for c in calls if c["state"] == "settled"]
    assert len(settled) == len(set(settled)) == len(rows(whole, "turns"))
    assert len(settled) <= mock.billed["calls"] <= len(settled) + states["lost"]
    assert mock.keys == {PROVIDERS}, "the provider gets its own key, and never the harness's"
    written = b"".join(file.read_bytes() for file in (tmp_path / "killed").rglob("*") if file.is_file())
    assert PROVIDERS.encode() not in written
    assert HARNESSES.encode() not in written
