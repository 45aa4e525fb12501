"""A run that is killed, short of disk, without its server or with a turned clock goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import Corridors, drunk, expert, raising

from agentloop.run import units
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from agentloop.types import Answer, Ask, CallFailed
from occupancy.record.errors import RunError
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)


def test_kill_9_over_http_loses_nothing_and_every_billed_token_is_in_the_ledger(tmp_path: Path) -> None:
    from benchmarks.kill_resume import kill_and_resume

    found = kill_and_resume(tmp_path, kills=4, tasks=8, seed=1, delay_s=0.05)
    assert (found.kills, found.episodes) == (4, 32)
    assert found.lost > 0, "no kill hit a call"


@pytest.mark.parametrize("room", [60_000, 90_000, 150_000])
def test_a_full_disk_ends_the_run_and_the_same_command_goes_on(tmp_path: Path, room: int) -> None:
    """Files may not grow past `room` bytes, in a process of its own: the same error path as a full disk."""
    whole = run_of(tmp_path / "whole", RECIPE, tasks="60")
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        code = 1
        try:
            units.COMMIT_EVERY_S = 0.01
            run_of(tmp_path / "run", RECIPE, tasks="60")
        except RunError as error:
            code = 42 if "make room on the disk" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42, "the run should have met the limit and said so"
    run = run_of(tmp_path / "run", RECIPE, tasks="60")
    same(run, whole, calls=False)
    again = [a for a in attempts(run) if a["state"] != "lost"]
    assert [(a["episode_id"], a["t"], a["output_tokens"]) for a in again] == [
        (a["episode_id"], a["t"], a["output_tokens"]) for a in attempts(whole)
    ]


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_of(tmp_path / "whole", RECIPE)
    now = [2e9]

    def jumping() -> float:
        now[0] -= 86_400
        return now[0]

    class Killed(BaseException):
        pass

    monkeypatch.setattr(time, "time", jumping)
    with pytest.raises(Killed):
        run_of(tmp_path / "run", RECIPE, teacher=raising(expert, Killed, at=[9]))
    run = run_of(tmp_path / "run", RECIPE)
    same(run, whole, calls=False)
    assert all(e["wall_s"] >= 0 for e in rows(run, "episodes", without=()))
    opened = [a for a in attempts(run) if a["state"] == "lost"]
    assert len(attempts(run)) == len(attempts(whole)) + len(opened)


def test_a_server_that_comes_back_elsewhere_is_the_same_run(tmp_path: Path) -> None:
    down = True

    async def teacher(ask: Ask) -> Answer:
        if down and ask.order > 5:
            raise CallFailed("nobody there", kind="connection", retry=True)
        return await expert(ask)

    def go(port: int) -> Any:
        settings = Settings(
            recipe=RECIPE,
            student="drunk",
            teacher="openai:m",
            tasks="8",
            seed=3,
            served_by={"teacher": f"http://h:{port}/v1"},
        )
        return asyncio.run(
            collect(
                tmp_path / "run",
                Setup(settings, Corridors(), drunk, teacher, SpendingLimits(retries=2, backoff_s=0)),
            )
        )

    with pytest.raises(RunError, match="bring its server back"):
        go(1)
    before = rows(open_run(tmp_path / "run"), "episodes")
    assert not [e for e in before if e["error"]], "an outage is nobody's data"
    down = False
    run = go(2)
    assert json.loads((run.folder / "run.json").read_text())["made_with"]["teacher_server"] == "http://h:1/v1"
    whole = run_of(tmp_path / "whole", RECIPE)
    without = ("wall_s", "teacher", "policy")
    for table in ("proposals", "turns", "traces"):
        assert rows(run, table) == rows(whole, table)
    assert rows(run, "episodes", without=without) == rows(whole, "episodes", without=without)


def test_calls_that_keep_failing_stop_the_run_before_they_fill_it(tmp_path: Path) -> None:
    """A server that answers every call with an error is lost too, though it can be reached."""

    async def teacher(ask: Ask) -> Answer:
        raise CallFailed("status 500", kind="server", retry=True)

    with pytest.raises(RunError, match="gives no answer"):
        run_of(
            tmp_path / "run",
            RECIPE,
            teacher=teacher,
            tasks="40",
            spending=SpendingLimits(retries=1, backoff_s=0),
        )
    failed = [e for e in rows(open_run(tmp_path / "run"), "episodes") if e["status"] == "teacher_failed"]
    assert len(failed) < 10


def test_an_error_of_our_own_stops_the_run_and_is_nobodys_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **more: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("agentloop.run.algorithm.write_trace", broken)
    with pytest.raises(ZeroDivisionError):
        run_of(tmp_path / "run", RECIPE)
    monkeypatch.undo()
    run = run_of(tmp_path / "run", RECIPE)
    assert rows(run, "traces") == rows(run_of(tmp_path / "whole", RECIPE), "traces")
    assert not [e for e in rows(run, "episodes") if e["error"]]


def test_a_commit_under_way_at_the_end_is_finished_before_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits at once would take the same number, and one of them would be lost."""
    monkeypatch.setattr(units, "COMMIT_EVERY_S", 0.0)
    writing, overlaps, parts = 0, [], []
    commit = Run.commit

    def slow(run: Run, given: Any) -> None:
        nonlocal writing
        writing += 1
        overlaps.append(writing)
        time.sleep(0.02)
        commit(run, given)
        parts.append(len(given["proposals"]))
        writing -= 1

    monkeypatch.setattr(Run, "commit", slow)
    run = run_of(tmp_path / "run", RECIPE, tasks="40", worlds=Corridors(workers=16))
    assert len(parts) > 1  # on a busy machine the first one may take until the end
    assert set(overlaps) == {1}
    assert len(rows(run, "proposals")) == sum(parts) == 80


def test_rows_whose_commit_waits_for_its_thread_at_the_end_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Busy(ThreadPoolExecutor):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.submit(time.sleep, 1.5)

    monkeypatch.setattr(units, "ThreadPoolExecutor", Busy)
    monkeypatch.setattr(units, "COMMIT_EVERY_S", 0.001)
    run = run_of(tmp_path / "run", RECIPE, tasks="20", worlds=Corridors(workers=16))
    assert len(rows(run, "proposals")) == 40
