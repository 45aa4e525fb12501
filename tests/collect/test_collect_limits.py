"""Limits are kept apart, every end has one status, and whatever a model writes is data."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hostile_text import hostile_turns
from toy_runs import attempts, rows, run_of, same
from toy_world import Corridor, Corridors, drunk, expert
from waiting import HANG_S

from agentloop.ledger.metered import LocalBilling
from agentloop.ledger.store import CallKey, Charge, Ledger
from agentloop.run import episode
from agentloop.run.summary import summarise
from agentloop.types import (
    Answer,
    Ask,
    CallFailed,
    ContextOverflow,
    Environment,
    Reply,
    Status,
    Task,
    Usage,
)
from occupancy.record.errors import DataError, RunError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)


def statuses(run: Any, kind: str) -> list[str]:
    return [e["status"] for e in rows(run, "episodes") if e["kind"] == kind]


@pytest.fixture
def wall_time_passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
    """What a policy awaits to be late: its episode's wall time passes at once, and no other's."""
    own: ContextVar[asyncio.Timeout] = ContextVar("own")

    def timeout(seconds: float | None) -> asyncio.Timeout:
        own.set(asyncio.timeout(seconds))
        return own.get()

    async def passes() -> None:
        own.get().reschedule(0.0)
        await asyncio.Event().wait()

    monkeypatch.setattr(episode, "asyncio", SimpleNamespace(timeout=timeout))
    return passes


def slow_after(turn: int, passes: Callable[[], Awaitable[None]]) -> Callable[[Ask], Awaitable[Answer]]:
    """A student whose wall time passes after so many turns."""

    async def slow(ask: Ask) -> Answer:
        if ask.t > turn:
            await passes()
        return await drunk(ask)

    return slow


def test_wall_time_ends_an_episode_without_a_reward(
    tmp_path: Path, wall_time_passes: Callable[[], Awaitable[None]]
) -> None:
    run = run_of(
        tmp_path / "run",
        replace(RECIPE, n=1),
        student=slow_after(3, wall_time_passes),
        wall_s=HANG_S,
        tasks="3",
    )
    late = [e for e in rows(run, "episodes") if e["status"] == "wall_time"]
    assert late
    assert all(e["R"] is None and e["length"] == 3 and "600 s" in e["error"] for e in late)


def test_a_teacher_over_its_wall_time_keeps_its_reservation(
    tmp_path: Path, wall_time_passes: Callable[[], Awaitable[None]]
) -> None:
    async def slow(ask: Ask) -> Answer:
        await wall_time_passes()
        raise AssertionError("never reached")

    with pytest.raises(RunError, match=r"nothing was begun .* the teacher had no turn within --wall"):
        run_of(tmp_path / "run", replace(RECIPE, n=1), teacher=slow, wall_s=HANG_S, tasks="3")
    run = open_run(tmp_path / "run")
    assert {a["state"] for a in attempts(run)} == {"lost"}
    assert {a["billed"] for a in attempts(run)} == {"perhaps"}
    assert set(statuses(run, "continuation")) == {"wall_time"}


@pytest.mark.parametrize("late", ["student", "teacher"])
def test_a_limit_within_which_nothing_begins_may_be_raised_by_the_same_command(
    tmp_path: Path, wall_time_passes: Callable[[], Awaitable[None]], late: str
) -> None:
    async def slow(ask: Ask) -> Answer:
        await wall_time_passes()
        raise AssertionError("never reached")

    recipe, folder = replace(RECIPE, n=1), tmp_path / "run"
    for _ in range(2):
        with pytest.raises(RunError, match=rf"the {late} had no turn .*same command with a larger --wall"):
            run_of(folder, recipe, **{late: slow}, wall_s=HANG_S)
    same(run_of(folder, recipe, wall_s=2 * HANG_S), run_of(tmp_path / "other", recipe), calls=False)
    with pytest.raises(DataError, match=r"was started with wall_s=1200\.0, now wall_s=600\.0"):
        run_of(folder, recipe, wall_s=HANG_S)  # once something was played


def test_many_episodes_that_a_limit_ends_are_a_warning(
    tmp_path: Path, wall_time_passes: Callable[[], Awaitable[None]]
) -> None:
    run = run_of(
        tmp_path / "run", replace(RECIPE, n=1), student=slow_after(1, wall_time_passes), wall_s=HANG_S
    )
    (warning,) = summarise(run)["warnings"]
    assert "8 of 8 episodes were not over within --wall" in warning


def test_four_ends_are_told_apart(tmp_path: Path) -> None:
    async def student(ask: Ask) -> Answer:
        task = ask.episode_id.split("#")[0]
        if task == "corridor/0" and ask.t == 2:
            return replace(await drunk(ask), text="forw", finish_reason="length")
        if task == "corridor/1" and ask.t == 2:
            raise ContextOverflow("8,300 tokens do not fit 8,192")
        if task == "corridor/2":
            return replace(await drunk(ask), text="stumble")
        return await expert(ask)

    run = run_of(tmp_path / "run", replace(RECIPE, n=1), student=student, tasks="4")
    ended = {e["task_id"]: e for e in rows(run, "episodes") if e["kind"] == "rollout"}
    words = [ended[f"corridor/{i}"]["status"] for i in range(4)]
    assert words == ["turn_length", "context", "horizon", "finished"]
    assert [ended[f"corridor/{i}"]["R"] for i in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert [ended[f"corridor/{i}"]["length"] for i in (0, 1)] == [2, 1]


def test_a_turn_cut_at_its_limit_is_no_target(tmp_path: Path) -> None:
    async def teacher(ask: Ask) -> Answer:
        answer = await expert(ask)
        return replace(answer, finish_reason="length") if ask.t == 5 else answer

    run = run_of(tmp_path / "run", RECIPE, teacher=teacher)
    cut = [t for t in rows(run, "turns") if t["finish_reason"] == "length"]
    assert cut
    trained = sum(t["target_turns"] for t in rows(run, "traces"))
    assert trained == sum(t["author"] == "teacher" for t in rows(run, "turns")) - len(cut)


class Strict(Corridor):
    async def step(self, text: str) -> Reply:
        status = "ok" if text in ("forward", "climb") else "no_command"
        return replace(await super().step(text), parse_status=status)


class StrictCorridors(Corridors):
    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        yield Strict(2 + int(task.task_id.split("/")[1]) % 5)


@pytest.mark.parametrize("end_on", [(), ("any",), ("no_command",), ("unclosed",)])
def test_a_turn_that_cannot_be_parsed_ends_the_episode_where_the_run_says_so(
    tmp_path: Path, end_on: tuple[str, ...]
) -> None:
    async def muddled(ask: Ask) -> Answer:
        answer = await expert(ask)
        return replace(answer, text="mumble") if ask.seed % 3 == 0 else answer

    run = run_of(tmp_path / "run", RECIPE, teacher=muddled, worlds=StrictCorridors(), end_on=end_on)
    ends = {e["episode_id"]: e for e in rows(run, "episodes") if e["status"] == "bad_parse"}
    bad = [t for t in rows(run, "turns") if t["parse_status"] == "no_command"]
    assert {t["author"] for t in bad} == {"student", "teacher"}
    if end_on in ((), ("unclosed",)):
        assert not ends
        return
    last = {e: max(t["t"] for t in rows(run, "turns") if t["episode_id"] == e) for e in ends}
    assert {(t["episode_id"], t["t"]) for t in bad} == set(last.items()), (
        "each such turn is its episode's last"
    )
    assert all(e["R"] == 0 and not e["error"] for e in ends.values())
    assert {t["text"] for t in bad} == {"stumble", "mumble"}, "the raw text is kept"
    trained = [m for t in rows(run, "traces") for m in json.loads(t["messages"]) if m["train"]]
    assert trained
    assert "mumble" not in {m["content"] for m in trained}
    with pytest.raises(DataError, match="end_on"):
        run_of(tmp_path / "run", RECIPE, teacher=muddled, worlds=StrictCorridors())


def test_an_overflow_ends_the_trace_before_the_teacher_is_paid_again(tmp_path: Path) -> None:
    async def teacher(ask: Ask) -> Answer:
        if ask.t >= 4:
            raise ContextOverflow("full")
        return await expert(ask)

    run = run_of(tmp_path / "run", RECIPE, teacher=teacher)
    refused = [a for a in attempts(run) if a["state"] == "failed"]
    assert refused
    assert all(a["billed"] == "no" and a["charged_tokens"] == 0 and a["attempt"] == 0 for a in refused)
    assert statuses(run, "continuation").count("context") == len(refused)


def test_foreign_exceptions_belong_to_the_seam_where_they_happened(tmp_path: Path) -> None:
    async def teacher(ask: Ask) -> Answer:
        if ask.t == 3:
            raise KeyError("choices")
        if ask.t == 5:
            ask.env.length = None  # type: ignore[attr-defined]
            ask.env.place = "x"  # type: ignore[attr-defined]
        return await expert(ask)

    run = run_of(tmp_path / "run", replace(RECIPE, K="inf"), teacher=teacher)
    errors = {e["status"]: e["error"] for e in rows(run, "episodes") if e["error"]}
    assert errors["teacher_failed"].startswith("the policy raised KeyError: 'choices' ("), "with its place"
    assert errors["environment_error"].startswith("step raised TypeError")


def test_a_policys_own_timeout_is_not_the_episodes(tmp_path: Path) -> None:
    async def teacher(ask: Ask) -> Answer:
        raise TimeoutError("the model is asleep")

    with pytest.raises(RunError, match=r"the teacher failed in all 16 episodes .*the model is asleep"):
        run_of(tmp_path / "run", RECIPE, teacher=teacher, wall_s=60)
    assert set(statuses(open_run(tmp_path / "run"), "continuation")) == {"teacher_failed"}


def test_retries_are_counted_and_shown_beside_what_was_accepted(tmp_path: Path) -> None:
    seen: set[tuple[str, int]] = set()

    async def flaky(ask: Ask) -> Answer:
        key = (ask.episode_id, ask.t)
        if key not in seen and random.Random(ask.seed).random() < 0.5:
            seen.add(key)
            raise CallFailed("busy", kind="rate_limit", retry=True, wait_s=0.0)
        return await expert(ask)

    from agentloop.ledger.report import account_of
    from agentloop.run.collect import SpendingLimits

    run = run_of(tmp_path / "run", RECIPE, teacher=flaky, spending=SpendingLimits(backoff_s=0))
    account = account_of(run)
    assert account["failures"] == {"rate_limit": len(seen)}
    assert sum(account["tasks_with_failures"].values()) == len(seen) > 0
    assert rows(run, "traces") == rows(run_of(tmp_path / "calm", RECIPE), "traces")


def test_equal_rollouts_are_reported(tmp_path: Path) -> None:
    from agentloop.run.summary import summarise

    summary = summarise(run_of(tmp_path / "run", replace(RECIPE, n=8), student=expert, tasks="3"))
    assert summary["repeated_rollouts"] == 3 * 7
    assert "word for word" in summary["warnings"][0]
    drawn = summarise(run_of(tmp_path / "drawn", replace(RECIPE, n=2), tasks="3"))
    assert drawn["prefixes"]["all"]["proposals"] == 6


def test_hostile_turns_are_recorded_outcomes(tmp_path: Path) -> None:
    """10,000 of them with FUZZ=10000; a few hundred in every run of the tests."""
    wanted = int(os.environ.get("FUZZ", "400"))
    turns = hostile_turns(seed=11)
    asked = 0

    async def hostile(ask: Ask) -> Answer:
        nonlocal asked
        asked += 1
        text = next(turns)
        finish = "length" if asked % 97 == 0 else "stop"
        return Answer(text, Usage(1 + len(text) % 50, "toy"), finish)

    tasks, worlds = str(max(wanted // 18, 1)), Corridors()
    worlds.T_max = 20
    run = run_of(
        tmp_path / "run",
        preset("op-short", K=3, n=1, T_max=20),
        student=hostile,
        teacher=hostile,
        tasks=tasks,
        worlds=worlds,
    )
    stored = rows(run, "turns")
    assert len(stored) == asked >= wanted
    episodes = rows(run, "episodes")
    assert {e["status"] for e in episodes} <= {str(s) for s in Status}
    assert len([e for e in episodes if e["kind"] == "rollout"]) == int(tasks)
    assert len(rows(run, "proposals")) == int(tasks)
    assert all(t["finish_reason"] in ("stop", "length") for t in stored)
    texts = {t["text"] for t in stored}
    assert "" in texts
    assert max(map(len, texts)) >= 10**6


def test_an_answer_that_was_bought_is_not_bought_again_by_the_process_that_bought_it(tmp_path: Path) -> None:
    """A unit whose machine died is played again by a ledger that stays open."""

    async def main() -> None:
        with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
            billing, key, most = LocalBilling(ledger, "teacher", "expert"), CallKey("e", 1, "c"), Charge(9)
            attempt = await billing.reserve(key, most)
            assert isinstance(attempt, int)
            await billing.charge(attempt, Answer("go", Usage(5, "toy")), Charge(5))
            assert await billing.reserve(key, most) == Answer("go", Usage(5, "toy"))
            assert isinstance(await billing.reserve(CallKey("e", 1, "another"), most), int)

    asyncio.run(main())


def test_orphaned_tokens_are_the_teachers_alone(tmp_path: Path) -> None:
    """They are named as a part of C_i, which has no token of a student that is paid."""

    async def main() -> dict[str, int]:
        with closing(Ledger(tmp_path / "ledger.sqlite")) as ledger:
            for role, tokens in (("teacher", 5), ("student", 70)):
                billing = LocalBilling(ledger, role, "m")
                for context in ("c", "another"):
                    attempt = await billing.reserve(CallKey(role, 1, context), Charge(99))
                    assert isinstance(attempt, int)
                    await billing.charge(attempt, Answer("go", Usage(tokens, "toy")), Charge(tokens))
            return ledger.account()

    account = asyncio.run(main())
    assert (account["C_i"], account["orphaned_tokens"], account["attempts"]) == (10, 5, 4)
