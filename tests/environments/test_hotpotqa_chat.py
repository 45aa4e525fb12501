"""A model behind an OpenAI-compatible server plays HotpotQA, in both formats."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hotpotqa_world import world

from agentloop.environments.hotpotqa.actions import TOOLS
from agentloop.environments.hotpotqa.environment import HotpotQA
from agentloop.policies.by_name import open_policy
from agentloop.run.collect import Settings, Setup, collect
from occupancy.record.recipe import preset

BODIES = web.AppKey("bodies", list)
CALL = {"name": "search", "arguments": '{"query": "the river of the town Aldor Ystra"}'}


async def complete(request: web.Request) -> web.Response:
    """Search until something was read, then answer; by tool calls where tools are given."""
    body = await request.json()
    request.app[BODIES].append(body)
    message: dict[str, Any] = {"role": "assistant", "content": "<think>so</think>"}
    if any("Doc 1" in m["content"] for m in body["messages"] if m["role"] in ("user", "tool")):
        message["content"] += "<answer>sea of 000</answer>"
    elif "tools" in body:
        message["tool_calls"] = [{"id": "x", "type": "function", "function": CALL}]
    else:
        message["content"] += f"<search>{json.loads(CALL['arguments'])['query']}</search>"
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    return web.json_response({"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage})


async def demonstrated(folder: Path, made: HotpotQA) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Demonstrations of one question, and what the server was asked."""
    app = web.Application()
    bodies: list[dict[str, Any]] = []
    app[BODIES] = bodies
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app) as server:
        teacher = open_policy(f"openai:m@{server.make_url('/v1')},max_tokens=64", made)
        file = folder / "tasks.txt"
        file.write_text("train/q0\n")
        recipe = preset("pure-bc", T_max=5)
        settings = Settings(recipe=recipe, student="teacher", teacher="m", tasks=f"@{file}")
        student = open_policy("teacher", made)
        run = await collect(folder / "run", Setup(settings, made, student, teacher))
        await teacher.close()  # type: ignore[attr-defined]
    (episode,) = run.read("episodes").to_pylist()
    assert (episode["R"], episode["length"], episode["status"]) == (1.0, 2, "finished")
    (trace,) = run.read("traces").to_pylist()
    return json.loads(trace["messages"]), bodies


@pytest.mark.parametrize("format", ["tags", "tools"])
def test_a_chat_model_is_a_teacher(format: str, tmp_path: Path) -> None:
    trace, bodies = asyncio.run(demonstrated(tmp_path, world(format=format)))
    roles = ["system", "user", "assistant", "tool" if format == "tools" else "user", "assistant"]
    assert [m["role"] for m in trace] == roles
    assert [m["role"] for m in bodies[-1]["messages"]] == roles[:-1]
    assert [m["train"] for m in trace] == [False, False, True, False, True]
    if format == "tools":
        assert bodies[0]["tools"] == list(TOOLS)
        assert bodies[-1]["messages"][2]["tool_calls"][0]["function"] == CALL
        assert "<tool_call>" in trace[2]["content"]
    else:
        assert "tools" not in bodies[0]
