"""Algorithm 1 on the toy world: what is written, what is counted, what survives."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same, truncate
from toy_world import Corridors, drunk, expert

from agentloop.run.collect import Settings, Setup, collect
from agentloop.run.summary import summarise
from agentloop.types import Answer, Ask, Environment, EnvironmentFailed, PolicyFailed, Reply, Task
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

OP_SHORT = preset("op-short", K=2, n=2, T_max=12)


def test_every_proposal_has_a_row_and_every_accepted_one_a_trace(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT)
    proposals = rows(run, "proposals")
    assert len(proposals) == 8 * 2
    assert all(1 <= p["t_prime"] <= p["T"] and p["probability"] == 1 / p["T"] for p in proposals)
    assert {p["outcome"] for p in proposals} == {"accepted"}
    assert len(rows(run, "traces")) == len(proposals)


def test_costs_are_the_teachers_turns_in_ledger_turns_and_traces(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT)
    turns = [t for t in rows(run, "turns") if t["author"] == "teacher"]
    by_hand = sum(10 + t["t"] for t in turns)
    summary = summarise(run)
    assert summary["C_i"] == by_hand == summary["C_tr"]
    assert summary["attempts"] == len(turns) == summary["target_turns"]
    assert max(e["teacher_turns"] for e in rows(run, "episodes")) == 2


def test_a_trace_trains_the_teachers_turns_and_stores_no_reply_to_the_last(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT)
    for trace in rows(run, "traces"):
        messages = json.loads(trace["messages"])
        assert all(m["train"] == (m["author"] == "teacher") for m in messages)
        assert messages[-1]["train"], "a trace ends with a target"
        assert sum(m["train"] for m in messages) == trace["target_turns"]
        assert [m["role"] for m in messages[:2]] == ["system", "user"]


def test_success_filter_costs_what_it_rejects(tmp_path: Path) -> None:
    async def hopeless(ask: Ask) -> Answer:
        return replace(await expert(ask), text="stumble") if ask.t < 9 else await expert(ask)

    run = run_of(tmp_path / "run", preset("op-success", T_max=12), teacher=hopeless)
    summary = summarise(run)
    assert summary["proposals"]["continuation_filtered"] > 0
    assert 0 < summary["C_tr"] < summary["C_i"]


def test_prefix_filter_skips_before_the_teacher_is_asked(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-critical", T_max=12))
    for proposal in rows(run, "proposals"):
        won = json.loads(proposal["psi"])["without_success"] is False
        assert (proposal["outcome"] == "prefix_filtered") == won
        assert won == (proposal["R"] == 1.0)
    assert {p["outcome"] for p in rows(run, "proposals")} >= {"prefix_filtered", "accepted"}
    asked = {a["episode_id"].split("#")[0] for a in attempts(run)}
    assert asked == {p["task_id"] for p in rows(run, "proposals") if p["outcome"] == "accepted"}


def test_fixed_law_rejects_what_lies_beyond_the_rollout(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("oec", psi="all", T_max=12, n=4))
    for proposal in rows(run, "proposals"):
        assert (proposal["outcome"] == "invalid_switch") == (proposal["t_prime"] > proposal["T"])
    assert summarise(run)["proposals"]["invalid_switch"] > 0


def test_pure_bc_is_the_teacher_from_the_first_turn(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("pure-bc", n=2, T_max=12))
    assert {e["kind"] for e in rows(run, "episodes")} == {"demo"}
    assert len(rows(run, "traces")) == 16
    assert {p["t_prime"] for p in rows(run, "proposals")} == {1}


@pytest.mark.parametrize("K", [1, 2, 3, 5])
def test_truncating_a_whole_run_equals_collecting_at_K(tmp_path: Path, K: int) -> None:
    async def fragile(ask: Ask) -> Answer:
        if ask.t == 7:
            raise PolicyFailed("off\nplan")
        return await expert(ask)

    whole = run_of(tmp_path / "whole", preset("op-short", K="inf", n=3, T_max=12), teacher=fragile)
    cut = truncate(whole, K, tmp_path / "cut")
    direct = run_of(tmp_path / "direct", preset("op-short", K=K, n=3, T_max=12), teacher=fragile)
    same(cut, direct)
    a, b = (summarise(open_run(tmp_path / name)) for name in ("cut", "direct"))
    assert {k: v for k, v in a.items() if k != "folder"} == {k: v for k, v in b.items() if k != "folder"}


def test_truncation_refuses_what_is_not_whole(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT)
    with pytest.raises(DataError, match="collected with K=2"):
        truncate(run, 1, tmp_path / "cut")


def test_pilot_hands_back_where_the_teacher_has_turns_left(tmp_path: Path) -> None:
    run = run_of(
        tmp_path / "run", preset("op-short", K="inf", T_max=12), pilot=True, handback=(0, 1, 3), demo_tasks=5
    )
    episodes = {e["episode_id"]: e for e in rows(run, "episodes")}
    handbacks = [e for e in episodes.values() if e["kind"] == "handback"]
    played = {e["episode_id"]: e["teacher_turns"] for e in episodes.values() if e["kind"] == "continuation"}
    assert len(handbacks) == 2 * sum(1 + (L > 1) + (L > 3) for L in played.values())
    turns = rows(run, "turns")
    for e in handbacks:
        own = [t for t in turns if t["episode_id"] == e["episode_id"]]
        assert {t["author"] for t in own} == {"student"}
        assert min(t["t"] for t in own) == episodes[e["parent"]]["switch_turn"] + e["K"]
        assert e["teacher_turns"] == e["K"]
        assert episodes[e["parent"]]["kind"] == "continuation"
    assert sum(e["kind"] == "demo" for e in episodes.values()) == 5
    # Hand-backs cost student tokens only.
    assert {a["episode_id"].split("#")[1].split("-")[0] for a in attempts(run)} == {"continuation", "demo"}


def test_hand_back_after_no_turn_is_the_students_own_rollout(tmp_path: Path) -> None:
    """The chain of contexts is one: a continuation's first context is the rollout's at t'."""
    run = run_of(tmp_path / "run", preset("op-short", K="inf", T_max=12))
    turns = rows(run, "turns")
    at = {(t["episode_id"], t["t"]): t["context_id"] for t in turns}
    for e in rows(run, "episodes"):
        if e["kind"] == "continuation":
            assert at[e["episode_id"], e["switch_turn"]] == at[e["parent"], e["switch_turn"]]


def test_an_environment_that_breaks_is_data(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT, worlds=Corridors(fails_at=4))
    broken = [e for e in rows(run, "episodes") if e["status"] == "environment_error"]
    assert broken
    assert all(e["R"] is None and e["error"] == "the corridor fell down" for e in broken)
    assert summarise(run)["proposals"]["no_data"] > 0


def test_a_task_that_does_not_open_is_counted(tmp_path: Path) -> None:
    class Closed(Corridors):
        @asynccontextmanager
        async def open(self, task: Task) -> AsyncIterator[Environment]:
            if task.task_id == "corridor/2":
                raise EnvironmentFailed("no such\ncorridor")
            async with super().open(task) as env:
                yield env

    run = run_of(tmp_path / "run", OP_SHORT, worlds=Closed())
    episodes = [e for e in rows(run, "episodes") if e["task_id"] == "corridor/2"]
    assert [(e["status"], e["length"], e["R"], e["error"]) for e in episodes] == [
        ("environment_error", 0, None, "no such corridor")
    ] * 2
    assert len({e["task_id"] for e in rows(run, "episodes")}) == 8


def test_a_changed_world_is_noticed_before_the_teacher_is_paid(tmp_path: Path) -> None:
    async def moody(ask: Ask) -> Answer:
        ask.env.length = 9  # type: ignore[attr-defined]
        return await drunk(ask)

    with pytest.raises(RunError, match="the replay failed in all 8 episodes"):
        run_of(tmp_path / "run", preset("op-short", K=2, n=1, T_max=12), student=moody)
    run = open_run(tmp_path / "run")
    desynced = [e for e in rows(run, "episodes") if e["status"] == "replay_desync"]
    assert desynced
    assert not attempts(run)
    assert {p["outcome"] for p in rows(run, "proposals")} == {"replay_desync"}


class Clocked(Corridors):
    """Every observation names the time, which is never the same."""

    def __init__(self, *, normalised: bool) -> None:
        super().__init__()
        self.normalised = normalised

    def change(self, corridor: Any) -> None:
        step = corridor.step

        async def late(text: str) -> Reply:
            reply = await step(text)
            return replace(reply, observation=f"[pid {next(TICKS)}] {reply.observation}")

        corridor.step = late
        if self.normalised:
            corridor.normalise = lambda text: re.sub(r"pid \d+", "pid", text)


TICKS = count(1)


def test_a_world_may_say_what_a_replay_compares(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", OP_SHORT, worlds=Clocked(normalised=True))
    assert {p["outcome"] for p in rows(run, "proposals")} == {"accepted"}
    seen = [t["observation"] for t in rows(run, "turns")]
    assert len(set(seen)) == len(seen), "stored is the text as it was"
    raw = run_of(tmp_path / "raw", OP_SHORT, worlds=Clocked(normalised=False))
    outcomes = {(p["t_prime"] > 1, p["outcome"]) for p in rows(raw, "proposals")}
    assert outcomes == {(True, "replay_desync"), (False, "accepted")}
    paid = {a["episode_id"] for a in attempts(raw)}
    assert paid == {t["episode_id"] for t in rows(raw, "traces")}, "a desync costs nothing"


def test_hostile_text_is_stored(tmp_path: Path) -> None:
    nasty = "go \x00\ud800 <|im_end|> \N{RIGHT-TO-LEFT OVERRIDE}" + "x" * 100_000

    async def hostile(ask: Ask) -> Answer:
        return replace(await expert(ask), text=nasty)

    run = run_of(tmp_path / "run", replace(OP_SHORT, n=1), teacher=hostile)
    stored = {t["text"] for t in rows(run, "turns") if t["author"] == "teacher"}
    assert stored == {nasty.replace("\ud800", "\\ud800")}


def test_same_settings_same_rows_on_any_number_of_workers(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", OP_SHORT, worlds=Corridors(workers=1))
    five = run_of(tmp_path / "five", OP_SHORT, worlds=Corridors(workers=5))
    same(one, five, calls=False)


def test_other_settings_on_the_same_folder_are_refused(tmp_path: Path) -> None:
    run_of(tmp_path / "run", OP_SHORT)
    with pytest.raises(DataError, match="seed=3, now seed=4"):
        run_of(tmp_path / "run", OP_SHORT, seed=4)


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    async def both() -> None:
        settings = Settings(recipe=OP_SHORT, student="drunk", teacher="expert", tasks="8")
        one, two = (collect(tmp_path / "run", Setup(settings, Corridors(), drunk, expert)) for _ in range(2))
        await asyncio.gather(one, two)

    with pytest.raises(RunError, match="being written"):
        asyncio.run(both())


def test_a_pilot_of_short_continuations_is_refused() -> None:
    with pytest.raises(InputError, match="whole continuations"):
        Settings(recipe=OP_SHORT, student="s", teacher="t", tasks="1", pilot=True)
