"""Rewards from a framework's own records, as they are written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from corridor_harness import Client, served, setup_of
from toy_runs import rows
from waiting import HANG_S

from agentloop.serve.calls import Failed
from agentloop.serve.rewards import Traces, Trials, end_of, end_of_trial, follow, records_of
from agentloop.types import Reply
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

RECIPE = preset("op-short", K=2, n=1, T_max=12)


def trace(key: str, score: float = 1.0, **changes: Any) -> dict[str, Any]:
    return {"id": key, "rewards": {"a": {"score": score, "weight": 0.5}}, "errors": []} | changes


def test_a_trace_says_its_reward_or_why_it_has_none() -> None:
    assert end_of(trace("e")) == Reply("", done=True, reward=0.5)
    assert end_of(trace("e", errors=[{"type": "T", "message": "it\nbroke"}])) == Failed("it broke")
    assert end_of(trace("e", 4.0)) == Failed("its reward 2.0 is outside 0 to 1")
    assert end_of(trace("e", rewards={})) == Failed("its trace has no reward")
    for spec in ("verifiers", "verifiers:", "elsewhere:x"):
        with pytest.raises(InputError, match="verifiers:FOLDER"):
            records_of(spec, print)


def test_every_line_is_read_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "one" / "traces.jsonl"
    file.parent.mkdir()
    said: list[str] = []
    records, line = Traces(tmp_path, said.append), json.dumps({"traces": [trace("a"), trace("b")]})
    assert list(records.new()) == []
    file.write_text(line + "\n" + line[:20])
    assert [key for key, _ in records.new()] == ["a", "b"]
    with file.open("a") as handle:
        handle.write(line[20:] + "\nno JSON\n[]\n" + json.dumps(trace("c")) + "\n")
    assert [key for key, _ in records.new()] == ["a", "b", "c"]
    assert list(records.new()) == []
    assert len(said) == 2


def test_trials_of_harbor_say_their_rewards_once(tmp_path: Path) -> None:
    def result(rewards: Any, kind: str = "") -> dict[str, Any]:
        told = {"exception_type": kind, "exception_message": "it\nbroke"} if kind else None
        verdict = None if rewards is None else {"rewards": rewards}
        return {"trial_name": "a__1", "exception_info": told, "verifier_result": verdict}

    one = Reply("", done=True, reward=1.0)
    assert end_of_trial(result({"reward": 1, "speed": 7})) == one
    assert end_of_trial(result({"passed": 1.0})) == one
    assert end_of_trial(result({"reward": 1}, "AgentTimeoutError")) == one
    assert end_of_trial(result({"reward": 1}, "APIError")) == Failed("APIError: it broke")
    assert end_of_trial(result({"a": 1, "b": 0})) == Failed(
        "its rewards are a, b: expected one, or one named reward"
    )
    assert end_of_trial(result({"reward": "high"})) == Failed("its reward 'high' is outside 0 to 1")
    assert end_of_trial(result(None)) == Failed("the trial has no reward")
    trials, file = Trials(tmp_path, print), tmp_path / "job" / "a__1" / "result.json"
    file.parent.mkdir(parents=True)
    for unreadable in ("{", "[" * 100_000):
        file.write_text(unreadable)
        assert list(trials.new()) == []
    file.write_text(json.dumps(result({"reward": 1})))
    assert list(trials.new()) == [("a__1__agent", one)]
    assert list(trials.new()) == []


def test_a_run_gets_them_while_it_is_served(tmp_path: Path) -> None:
    """Also of episodes that the run does not know, and with a line that is none."""
    file, said = tmp_path / "traces.jsonl", []

    async def run() -> None:
        async with served(tmp_path / "run", setup_of(RECIPE)) as harness:
            following = asyncio.create_task(follow(harness.desk, Traces(tmp_path, said.append)))
            file.write_text("no JSON\n")
            while not said:
                await asyncio.sleep(0.05)
            for n in range(2):
                await _unrewarded(harness, f"e{n}")
                with file.open("a") as handle:
                    handle.write("".join(json.dumps(trace(key)) + "\n" for key in ("x", f"e{n}")))
                async with asyncio.timeout(HANG_S):
                    while f"e{n}" not in harness.desk.ended:
                        await asyncio.sleep(0.05)
            following.cancel()

    asyncio.run(run())
    assert "cannot be read" in said[0]
    rollout, taught = sorted(
        rows(open_run(tmp_path / "run"), "episodes"), key=lambda row: -ord(row["kind"][0])
    )
    assert (rollout["kind"], rollout["R"], rollout["status"]) == ("rollout", 0.5, "finished")
    assert taught["status"] in ("finished", "capped")


async def _unrewarded(harness: Client, key: str) -> None:
    messages = [{"role": "user", "content": "You stand at 0 of 3."}]
    for t in range(3):
        said = await harness.chat(key, messages, "t")
        if isinstance(said, tuple):
            return
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": f"You are at {t} of 3."},
        ]
