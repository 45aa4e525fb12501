"""What a conversation may be: it grows, is repeated, streamed, and has tools; all else is refused by name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from corridor_harness import ENDED, FIRST, RECIPE, SYSTEM, Client, Reader, during, said, setup_of

from agentloop.serve.calls import Said, same_message
from agentloop.types import Ask


class Thinking(Reader):
    """Asked once, it answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, ask: Ask) -> Any:
        self.asked.set()
        await self.may_answer.wait()
        return await super().__call__(ask)


def test_the_same_call_again_gets_the_same_turn_charged_once(tmp_path: Path) -> None:
    student = Reader()

    async def act(harness: Client) -> None:
        turns = await asyncio.gather(*(harness.chat("e", FIRST) for _ in range(5)))
        second = [*FIRST, said("forward"), ENDED]
        assert turns == ["forward"] * 5
        assert [await harness.chat("e", second) for _ in range(3)] == ["forward"] * 3
        assert await harness.chat("e", FIRST) == "forward"
        assert student.calls == 2

    during(tmp_path, act, setup=setup_of(RECIPE, student=student))


def test_conversations_only_grow(tmp_path: Path) -> None:
    other = [{"role": "system", "content": "You name conversations."}, *FIRST[1:]]
    grown = [*FIRST, said("forward"), ENDED]

    async def act(harness: Client) -> None:
        assert await harness.chat("e", FIRST) == "forward"
        for messages, code, why in (
            (other, "other_conversation", "sub-agent"),
            ([*FIRST[:1], ENDED], "other_conversation", "second harness"),
            ([*FIRST, said("stumble"), ENDED], "rewritten_history", "'forward' was said and 'stumb"),
            (
                [*FIRST, said("forward"), ENDED, said("forward"), ENDED],
                "foreign_turn",
                "user, assistant, user",
            ),
            ([SYSTEM, *grown[1:2], said("summary"), ENDED], "rewritten_history", "compaction"),
        ):
            status, error = await harness.chat("e", messages)
            assert (status, error["code"]) == (400, code), error
            assert why in error["message"], error
        assert await harness.chat("e", grown) == "forward"
        status, error = await harness.chat("new", grown)
        assert (status, error["code"]) == (404, "unknown_episode")

    during(tmp_path, act, setup=setup_of(RECIPE, student=Reader()))


def test_a_harness_may_leave_out_reasoning_and_write_calls_anew() -> None:
    call = '<tool_call>\n{"name": "go", "arguments": {"b": 1, "a": 2}}\n</tool_call>'
    anew = '<tool_call>\n{"name": "go", "arguments": {"a": 2,"b": 1}}\n</tool_call>'
    for ours, theirs in (("forward", " forward\n"), ("<think>On.</think>\nforward", "forward"), (call, anew)):
        assert same_message(Said("assistant", ours), Said("assistant", theirs))
        assert same_message(Said("assistant", f"<think>?</think>\n{ours}"), Said("assistant", theirs))
        assert not same_message(Said("user", ours), Said("user", theirs))
    assert not same_message(Said("assistant", "forward"), Said("assistant", "climb"))


def test_parallel_calls_of_one_episode_are_refused(tmp_path: Path) -> None:
    student = Thinking()

    async def act(harness: Client) -> None:
        first = asyncio.create_task(harness.chat("e", FIRST))
        await student.asked.wait()
        status, error = await harness.chat("e", [*FIRST, said("forward"), ENDED])
        assert (status, error["code"]) == (400, "parallel_calls")
        student.may_answer.set()
        assert await first == "forward"

    during(tmp_path, act, setup=setup_of(RECIPE, student=student))


def test_a_client_that_goes_away_finds_its_turn_again(tmp_path: Path) -> None:
    student = Thinking()

    async def act(harness: Client) -> None:
        port = int(harness.address.rpartition(":")[2])
        body = json.dumps({"messages": FIRST, "stream": True}).encode()
        turn, arrived = harness.desk.turn, 0

        async def counted(*given: Any) -> Any:
            nonlocal arrived
            arrived += 1
            return await turn(*given)

        harness.desk.turn = counted
        for n in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /episodes/e/v1/chat/completions HTTP/1.1\r\nHost: x\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            while arrived <= n:
                await asyncio.sleep(0.01)
            writer.transport.abort()
        student.may_answer.set()
        assert await harness.chat("e", FIRST) == "forward"
        assert student.calls == 1

    during(tmp_path, act, setup=setup_of(RECIPE, student=student))


def test_two_harnesses_with_one_key_share_an_episode_until_they_differ(tmp_path: Path) -> None:
    async def act(harness: Client) -> None:
        ended = await asyncio.gather(harness.play("e", 3, "t"), harness.play("e", 3, "t"))
        assert ended == ["done", "done"]
        assert await harness.play("e", 4, "t") == "finished"

    student = Reader()
    during(tmp_path, act, setup=setup_of(RECIPE, student=student))
    assert student.calls == 3


def test_a_stream_is_the_same_turn_in_parts(tmp_path: Path) -> None:
    body = {"messages": FIRST, "stream": True, "stream_options": {"include_usage": True}, "model": "m"}

    async def act(harness: Client) -> str:
        url = f"{harness.address}/episodes/e/v1/chat/completions"
        async with harness.session.post(url, json=body) as response:
            assert response.content_type == "text/event-stream"
            return await response.text()

    lines = during(tmp_path, act, setup=setup_of(RECIPE, student=Reader())).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in parts[:-1]) == "forward"
    assert parts[-2]["choices"][0]["finish_reason"] == "stop"
    assert parts[-1]["usage"]["completion_tokens"] == 7


def test_tools_are_part_of_the_context_and_calls_come_back_in_their_own_form(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "walk", "parameters": {"type": "object"}}}
    read: list[tuple[Any, ...]] = []

    class Caller(Reader):
        async def __call__(self, ask: Ask) -> Any:
            read.append(tuple((m.role, m.content) for m in ask.context))
            answer = await super().__call__(ask)
            call = '<tool_call>\n{"name": "walk", "arguments": {"b":1, "a": "é"}}\n</tool_call>'
            return type(answer)(f"On we go.\n{call}\n{call}" if ask.t == 1 else "Done.", answer.usage)

    async def act(harness: Client) -> None:
        _, got = await harness.post(
            "/v1/chat/completions", {"messages": FIRST, "tools": [tool]}, **{"X-Session-ID": "e"}
        )
        message = got["choices"][0]["message"]
        assert got["choices"][0]["finish_reason"] == "tool_calls"
        assert message["content"] == "On we go."
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"a": "é", "b": 1}
        for call in message["tool_calls"]:
            # Frameworks write the arguments anew.
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=1)
        replies = [
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(reversed(message["tool_calls"]), ("second", "first"), strict=True)
        ]
        _, got = await harness.post(
            "/v1/chat/completions",
            {"messages": [*FIRST, message, *replies], "tools": [tool]},
            **{"X-Session-ID": "e"},
        )
        assert got["choices"][0]["message"] == {"role": "assistant", "content": "Done."}
        status, error = await harness.chat("e", [*FIRST, message, *replies, said("Done."), ENDED])
        assert (status, error["code"]) == (400, "other_conversation")

    during(tmp_path, act, setup=setup_of(RECIPE, student=Caller()))
    assert '"name": "walk"' in read[0][0][1]
    assert read[1][-1] == ("tool", "first\n</tool_response>\n<tool_response>\nsecond")
