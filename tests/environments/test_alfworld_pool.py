"""Worker processes: leased, killed, hung, cancelled, closed; nothing is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import HANG_S, ends

from agentloop.environments.alfworld.games import Game
from agentloop.environments.alfworld.pool import Alfworld, open_alfworld
from agentloop.environments.alfworld.worker import Worker
from agentloop.types import EnvironmentFailed, Environments, Replay, Task
from benchmarks.alfworld_memory import one_worker
from occupancy.record.errors import InputError

pytestmark = [pytest.mark.alfworld, pytest.mark.usefixtures("data_dir")]

TASKS = [
    Task(name, name, "valid_seen")
    for name in (
        "valid_seen/pick_and_place_simple-ToiletPaper-None-ToiletPaperHanger-406/trial_T20190908_122858_883968",
        "valid_seen/look_at_obj_in_light-CD-None-DeskLamp-320/trial_T20190907_224451_655673",
    )
]


@asynccontextmanager
async def opened(workers: int = 1) -> AsyncIterator[Alfworld]:
    pool = open_alfworld(workers=workers)
    try:
        yield pool
    finally:
        await pool.close()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_killed_worker_fails_its_episode_and_is_replaced() -> None:
    async def body() -> None:
        async with opened() as pool:
            async with pool.open(TASKS[0]) as env:
                await env.reset(0)
                killed = env.worker.pid
                os.kill(killed, signal.SIGKILL)
                with pytest.raises(EnvironmentFailed, match=r"died during 'step'.*SIGKILL"):
                    await env.step("look")
                with pytest.raises(EnvironmentFailed):
                    await env.step("look")
            assert not exists(killed)
            async with pool.open(TASKS[0]) as env:
                assert env.worker.pid != killed
                assert not (await env.reset(0)).done

    asyncio.run(body())


def test_a_worker_that_died_while_idle_is_not_leased() -> None:
    async def body() -> None:
        async with opened() as pool:
            async with pool.open(TASKS[0]) as env:
                first = env.worker.pid
            os.kill(first, signal.SIGKILL)
            while (Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
                await asyncio.sleep(0.01)
            async with pool.open(TASKS[0]) as env:
                await env.reset(0)
                assert not exists(first)

    asyncio.run(body())


def test_a_new_worker_that_does_not_load_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    load, calls = Worker.load, 0
    fails = 1

    async def failing(self: Worker, game: Game) -> None:
        nonlocal calls
        calls += 1
        if calls <= fails:
            raise EnvironmentFailed("slow start")
        await load(self, game)

    monkeypatch.setattr(Worker, "load", failing)

    async def body() -> None:
        nonlocal calls, fails
        async with opened() as pool:
            async with pool.open(TASKS[0]) as env:
                assert not (await env.reset(0)).done
            calls, fails = 0, 9
            with pytest.raises(EnvironmentFailed, match="slow start"):
                async with pool.open(TASKS[1]):
                    raise AssertionError("never reached")
            assert (calls, len(pool._all)) == (3, 0), "the old worker, and two new ones"

    asyncio.run(body())


def test_an_episode_that_killed_its_worker_is_not_the_tasks_last() -> None:
    async def body() -> None:
        async with opened() as pool, pool.open(TASKS[0]) as env:
            first = await env.reset(0)
            os.kill(env.worker.pid, signal.SIGKILL)
            with pytest.raises(EnvironmentFailed, match="died during 'step'"):
                await env.step("look")
            assert await env.reset(0) == first
            assert len(pool._all) == 1

    asyncio.run(body())


def test_hung_cancelled_and_failed_calls_end_the_process() -> None:
    async def body() -> None:
        async with opened() as pool:
            for wrong in ("hang", "cancel", "fail"):
                async with pool.open(TASKS[0]) as env:
                    worker = next(iter(pool._all))
                    if wrong == "hang":
                        os.kill(env.worker.pid, signal.SIGSTOP)
                        worker.timeout_s = 0.1
                        with pytest.raises(EnvironmentFailed, match=r"did not answer 'reset' in 0\.1 s"):
                            await env.reset(0)
                    elif wrong == "cancel":
                        os.kill(env.worker.pid, signal.SIGSTOP)
                        call = asyncio.create_task(env.reset(0))
                        await asyncio.sleep(0.05)
                        call.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await call
                    else:
                        with pytest.raises(
                            EnvironmentFailed, match=r"'step' failed inside the game: .*reset first"
                        ):
                            await env.step("look")
                    assert not exists(worker.pid)
                    assert not worker.alive

    asyncio.run(body())


def test_leases_wait_for_a_worker_and_prefer_the_one_that_holds_the_game() -> None:
    async def body() -> None:
        async with opened(workers=2) as pool:
            async with pool.open(TASKS[0]) as a, pool.open(TASKS[1]) as b:
                pids = [a.worker.pid, b.worker.pid]
                third = asyncio.create_task(pool.open(TASKS[0]).__aenter__())
                await asyncio.sleep(0.05)
                assert not third.done()
                third.cancel()
            for task, pid in zip((*TASKS[::-1], *TASKS), (*pids[::-1], *pids), strict=True):
                async with pool.open(task) as env:
                    assert env.worker.pid == pid

    asyncio.run(body())


def test_closing_leaves_no_process_no_descriptor_and_opens_nothing_more() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def body() -> None:
        before = descriptors()
        pool = open_alfworld(workers=2)
        async with pool.open(TASKS[0]) as a:
            pids = [a.worker.pid]
            await pool.close()
            with pytest.raises(EnvironmentFailed):
                await a.reset(0)
        assert not any(map(exists, pids))
        assert descriptors() <= before  # what earlier tests left may be closed meanwhile
        await pool.close()
        with pytest.raises(EnvironmentFailed, match="pool is closed"):
            async with pool.open(TASKS[0]):
                pass

    asyncio.run(body())


SCRIPT = """
import asyncio
import signal
import sys
from agentloop.environments.alfworld.pool import open_alfworld
sys.path.append("tests")
from tests.environments.test_alfworld_pool import TASKS

async def main():
    pool = open_alfworld(workers=1)
    async with pool.open(TASKS[0]) as env:
        print(env.worker.pid, flush=True)
        while True:
            await env.reset(0)

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent_and_say_nothing(how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    with parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.killpg(parent.pid, how)  # as a terminal sends Ctrl-C: to the whole group
        _, errors = parent.communicate(timeout=HANG_S)
    assert ends(worker)
    assert "_receive" not in errors  # where a worker waits for its parent
    assert "BrokenPipe" not in errors
    assert (errors == "") == (how == signal.SIGKILL)


def test_one_process_plays_different_games_in_bounded_memory() -> None:
    ((played, now, peak),) = asyncio.run(one_worker("valid_seen:6"))
    assert played == 6
    assert now <= peak < 400


def test_a_worker_process_keeps_its_last_games_only() -> None:
    worker = Worker(timeout_s=60)
    try:
        for name in "abcbd":
            if name in worker.recent:
                worker.recent.remove(name)
            worker.recent.append(name)
        assert list(worker.recent) == ["c", "b", "d"]
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"workers": 0}, "of at least 1"),
        ({"timeout_s": 0}, "above 0"),
        ({"timeout_s": float("nan")}, "above 0"),
        ({"grammar": "2.1.3"}, r"expected one of 2\.1\.1, 2\.1\.2"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        open_alfworld(**settings)  # type: ignore[arg-type]


def test_the_benchmark_says_what_it_is() -> None:
    pool: Environments = open_alfworld(workers=3)
    assert (pool.name, pool.replay, pool.T_max, pool.capacity) == ("alfworld", Replay.CHECKED, 50, 3)
    assert pool.version.endswith("grammar 2.1.1")
    assert pool.policy("gpt") is None
    for name in pool.policies:
        assert pool.policy(name) is not None
    with pytest.raises(InputError, match="no setting 'laps'"):
        pool.policy("scripted:laps=1")
