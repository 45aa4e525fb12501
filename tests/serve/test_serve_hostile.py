"""What a harness does wrong gets one clear answer, costs nothing, and harms no other episode."""

from __future__ import annotations

import asyncio
import json
import resource
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from corridor_harness import ENDED, FIRST, RECIPE, SYSTEM, Client, Reader, during, said, setup_of
from toy_runs import attempts, rows
from waiting import HANG_S

import agentloop.listening as listening_module
from agentloop.serve.calls import HarnessCall, Said
from agentloop.serve.desk import Desk
from agentloop.serve.journal import Journal, Recorded
from agentloop.serve.settings import Serving
from agentloop.types import Ask, CallFailed, Reply
from occupancy.record.errors import BudgetStopped, InputError
from occupancy.record.rows import Key
from occupancy.runs import open_run


def test_what_is_no_call_is_refused_by_name(tmp_path: Path) -> None:
    chat = "/v1/chat/completions"
    tool = {"type": "function", "function": {"name": "go", "parameters": {}}}
    bodies: list[tuple[Any, int, str]] = [
        (b"{", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        ({"messages": "hello"}, 400, "a list of messages"),
        ({"messages": []}, 400, "last message"),
        ({"messages": [SYSTEM]}, 400, "last message"),
        ({"messages": [*FIRST, said("forward")]}, 400, "last message"),
        ({"messages": ["hello"]}, 400, "expected objects"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "role 'robot'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text alone"),
        ({"messages": [{"role": "user", "content": 7}]}, 400, "content"),
        ({"messages": FIRST, "n": 2}, 400, "n=2"),
        ({"messages": FIRST, "tools": [tool], "tool_choice": "required"}, 400, "tool_choice"),
        ({"messages": FIRST, "response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"messages": FIRST, "tools": "go"}, 400, "tools"),
        ({"messages": [*FIRST, {"role": "assistant", "tool_calls": [1]}, ENDED]}, 400, "tool_calls"),
    ]

    async def act(harness: Client) -> None:
        for body, status, why in bodies:
            got = await harness.post(chat, body, **{"X-Session-ID": "e"})
            assert got[0] == status, (body, got)
            assert why in got[1]["error"]["message"], got
            assert "\n" not in got[1]["error"]["message"]
        assert (await harness.get("/status"))[1]["tasks"] == 0

    during(tmp_path, act)
    assert not rows(open_run(tmp_path), "episodes")


def test_addresses_and_keys(tmp_path: Path) -> None:
    body = {"messages": FIRST}

    async def act(harness: Client) -> None:
        chat = "/v1/chat/completions"
        for headers, status, code in (
            ({}, 401, "wrong_key"),
            ({"Authorization": "Bearer other-secret/episode/e"}, 401, "wrong_key"),
            ({"Authorization": "Basic open-sesame"}, 401, "wrong_key"),
            ({"Authorization": "Bearer open-sesame"}, 400, "no_episode"),
            ({"Authorization": "Bearer open-sesame/episode/e", "X-Session-ID": "f"}, 400, "bad_request"),
            ({"Authorization": "Bearer open-sesame", "X-Session-ID": "e" * 201}, 400, "bad_request"),
            (
                {"Authorization": "Bearer open-sesame", "X-Session-ID": "e", "X-Task-ID": "a b"},
                400,
                "bad_request",
            ),
        ):
            got = await harness.post(chat, body, **headers)
            assert (got[0], got[1]["error"]["code"]) == (status, code)
            assert "open-sesame" not in json.dumps(got[1])
        harness.headers = {"Authorization": "Bearer open-sesame"}
        assert (await harness.get("/nothing"))[0] == 404
        assert (await harness.get("/episodes/e"))[0] == 404
        assert (await harness.reward("e", 1.0))[1]["error"]["code"] == "unknown_episode"
        assert (await harness.get("/v1/models"))[1]["data"][0]["id"] == "fewsteps"
        one = await harness.post("/episodes/e/v1/chat/completions", body)
        two = await harness.post(chat, body, Authorization="Bearer open-sesame/episode/e")
        assert one == two
        assert one[0] == 200
        for reward in ("much", -0.1, 1.1, float("nan"), None, True):
            assert (await harness.reward("e", reward))[0] == 422
        assert (await harness.get("/episodes/e"))[1] == {"state": "open"}

    during(tmp_path, act, access_key="open-sesame")
    stored = "".join(file.read_text("utf-8", "replace") for file in tmp_path.rglob("*") if file.is_file())
    assert "open-sesame" not in stored


def test_other_machines_need_a_key() -> None:
    from agentloop.serve.settings import Serving

    with pytest.raises(InputError, match="--key-env"):
        Serving(host="0.0.0.0")


def test_bodies_are_bounded_in_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Session-ID: e\r\n"

    async def act(harness: Client) -> None:
        large = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000_000}]}).encode()
        url = f"{harness.address}/episodes/e/v1/chat/completions"
        async with harness.session.post(url, data=BytesIO(large)) as response:
            assert response.status == 413
        port = int(harness.address.rpartition(":")[2])
        for body, status in (
            (b"Content-Length: 1000\r\n\r\n{", b" 408 "),
            (b"Content-Encoding: gzip\r\nContent-Length: 22\r\n\r\n" + b"x" * 22, b" 415 "),
            (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
        ):
            monkeypatch.setattr(listening_module, "BODY_S", 0.3 if status == b" 408 " else HANG_S)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + body)
            assert status in await reader.readline()
            writer.close()
        assert await harness.chat("e", FIRST) in ("forward", "stumble")

    during(tmp_path, act)


def test_a_replay_that_differs_is_shown_with_both_texts_before_the_teacher_is_asked(tmp_path: Path) -> None:
    teacher = Reader()

    async def act(harness: Client) -> Any:
        await harness.play("first", 3, "t")
        world = [SYSTEM, {"role": "user", "content": "You stand at 0 of 4."}]
        return await harness.chat("second", world, "t")

    status, error = during(tmp_path, act, setup=setup_of(RECIPE, student=Reader(), teacher=teacher))
    assert (status, error["code"]) == (410, "replay_desync")
    assert "0 of 3" in error["message"]
    assert "0 of 4" in error["message"]
    assert teacher.calls == 0
    episodes = {row["kind"]: row for row in rows(open_run(tmp_path), "episodes")}
    assert episodes["continuation"]["status"] == "replay_desync"
    assert "0 of 4" in episodes["continuation"]["error"]


def test_a_task_that_needs_no_further_episode_says_so(tmp_path: Path) -> None:
    async def act(harness: Client) -> None:
        for key in "ab":
            await harness.play(key, 3, "t")
        while (await harness.get("/status"))[1]["units_in_play"]:
            await asyncio.sleep(0.01)
        assert await harness.play("c", 3, "t") == "not_needed"
        assert (await harness.reward("a", 1.0))[1] == {"used": False}
        assert await harness.chat("d", FIRST, "u") in ("forward", "stumble")
        assert await harness.play("e", 3, "v") == "enough_tasks"

    during(tmp_path, act, tasks=2)


def test_a_model_that_fails_and_a_harness_that_falls_silent(tmp_path: Path) -> None:
    async def broken(ask: Ask) -> Any:
        raise CallFailed("the account ab-1234 is empty", kind="refused")

    async def act(harness: Client) -> Any:
        first = await harness.chat("silent", FIRST, "t")
        while "silent" not in harness.desk.ended:
            await asyncio.sleep(0.01)
        harness.desk.serving = replace(harness.desk.serving, idle_s=HANG_S)
        late = await harness.chat("silent", [*FIRST, said(first), ENDED], "t")
        await harness.play("good", 3, "u")
        assert await harness.play("second", 3, "u") == "teacher_failed"
        return late

    setup = setup_of(RECIPE, student=Reader(), teacher=broken)
    late = during(tmp_path, act, setup=setup, ended=True, idle_s=0.3)
    assert (late[0], late[1]["code"]) == (410, "environment_error")
    assert "neither made a call" in late[1]["message"]
    status = [row["status"] for row in rows(open_run(tmp_path), "episodes")]
    assert "environment_error" in status
    assert "teacher_failed" in status


def test_an_episode_that_the_harness_gives_up_has_its_reason_in_the_run(tmp_path: Path) -> None:
    async def act(harness: Client) -> None:
        await harness.chat("e", FIRST)
        assert (await harness.post("/episodes/e/reward", {"error": ""}))[0] == 422
        given_up = {"error": "the sandbox\ndied"}
        assert (await harness.post("/episodes/e/reward", given_up))[1] == {"used": True}

    during(tmp_path, act, ended=True)
    (episode,) = rows(open_run(tmp_path), "episodes")
    assert (episode["status"], episode["R"]) == ("environment_error", None)
    assert episode["error"] == "the harness says: the sandbox died"


def test_the_budget_is_never_exceeded_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    from agentloop.run.settings import SpendingLimits

    tasks = {f"t{i}": 3 for i in range(6)}

    def run(budget: int, name: str) -> None:
        setup = setup_of(RECIPE, spending=SpendingLimits(budget=budget))

        async def act(harness: Client) -> None:
            for n in range(2):
                await asyncio.gather(*(harness.play(f"{name}-{n}-{t}", L, t) for t, L in tasks.items()))

        during(tmp_path, act, setup=setup, ended=True, grace_s=0.05)

    with pytest.raises(BudgetStopped, match="the budget does not hold the next call"):
        run(45, "first")
    charged = sum(c["charged_tokens"] for c in attempts(open_run(tmp_path)) if c["role"] == "teacher")
    assert 0 < charged <= 45
    run(10_000, "second")
    outcomes = [row["outcome"] for row in rows(open_run(tmp_path), "proposals")]
    assert len(outcomes) == 6
    assert "budget_stopped" not in outcomes


def test_a_stopped_server_goes_on_with_fewer_tasks_and_waits_no_longer_than_told(tmp_path: Path) -> None:
    """Two episodes are open at the stop; one harness goes on, the other asks again much later."""

    may_answer = asyncio.Event()

    class Slow(Reader):
        async def __call__(self, ask: Ask) -> Any:
            if ask.t == 2:
                await may_answer.wait()
            return await super().__call__(ask)

    async def begin(harness: Client) -> None:
        assert [await harness.chat(key, FIRST, key) for key in "ab"] == ["forward", "forward"]

    async def go_on(harness: Client) -> None:
        grown = [*FIRST, said("forward"), ENDED]
        status, error = await harness.chat("a", grown, "a")
        assert (status, error["code"]) == (503, "wait")
        may_answer.set()
        while (found := await harness.chat("a", grown, "a")) == (status, error):
            pass
        assert found == "forward"
        assert (await harness.chat("c", FIRST, "c"))[1]["code"] == "enough_tasks"
        assert (await harness.get("/status"))[1]["open_episodes"] == 2

    student = Slow()
    during(tmp_path, begin, setup=setup_of(RECIPE, student=student))
    during(tmp_path, go_on, setup=setup_of(RECIPE, student=student), tasks=1, wait_s=0.2)
    assert student.calls == 3


def test_a_full_disk_leaves_whole_lines_and_the_call_is_repeated(tmp_path: Path) -> None:
    async def act(harness: Client) -> Any:
        grown = [*FIRST, said(await harness.chat("e", FIRST)), ENDED]
        file = tmp_path / "serve.jsonl"
        size, limits = file.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 9, limits[1]))
        try:
            status, error = await harness.chat("e", grown)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert file.stat().st_size == size
        assert (status, error["code"]) == (503, "failed")
        assert "make room" in error["message"]
        return await harness.chat("e", grown)

    assert during(tmp_path, act, setup=setup_of(RECIPE, student=Reader())) == "forward"
    with closing(Journal(tmp_path)) as journal:
        assert [len(episode.replies) for episode in journal.recorded()] == [1]


def test_a_reward_is_known_again_by_the_key_that_took_an_episode_over(tmp_path: Path) -> None:
    call = HarnessCall((Said("user", "go"),), has_tools=False)

    async def main() -> None:
        unit = Key("rollout", "task", 0)
        with closing(Journal(tmp_path)) as journal:
            journal.began(Recorded("first", "task", unit, 0, call))
            journal.taken_over("first", "second")
        with closing(Journal(tmp_path)) as journal:
            desk = Desk(journal, lambda task, with_demo: 0, Serving())
            desk.recover(lambda key: key == unit)
            for key in ("first", "second"):
                assert not desk.end_of(key, Reply("", done=True, reward=1.0))

    asyncio.run(main())
