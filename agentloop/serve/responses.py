"""Calls of OpenAI's Responses interface as chat calls, and turns as its answers; nothing is stored.

Every call brings the whole conversation. Its items become messages as they do in an import, and a message of
the answer its output items. What needs a server that remembers, and tools that a server runs, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentloop.serve import calls
from agentloop.serve.calls import HarnessCall, Refused, call_of, parsed
from agentloop.types import Usage
from occupancy.importers.agent_logs.responses import add_item
from occupancy.importers.episodes import ImportSettings
from occupancy.importers.files import Place, listed, mapping
from occupancy.record.errors import DataError

_REMEMBERS = (
    "previous_response_id",
    "conversation",
    "store",
    "background",
    "prompt",
    "context_management",
)
"""Settings that need a server which keeps or rewrites what was said."""
_ITEMS = ("message", "reasoning", "function_call", "function_call_output")
_FUNCTION = ("name", "description", "parameters", "strict")
Body = Mapping[str, Any]


def read_call(body: bytes) -> HarnessCall:
    """The call in a request's body; Refused where it is none, or asks what cannot be given."""
    given = parsed(body, "input", "a text or a list of items, as for POST /v1/responses", str, list)
    for name in _REMEMBERS:
        if given.get(name):
            raise _not_supported(f"{name}: nothing is kept between calls; leave it out, and send every item")
    settings = {name: given.get(name) for name in ("model", "stream", "temperature", "top_p", "tool_choice")}
    tools = given.get("tools")
    logprobs = given.get("top_logprobs") or "message.output_text.logprobs" in listed(given.get("include"))
    return call_of(
        {name: value for name, value in settings.items() if value is not None}
        | {
            "messages": _messages(given),
            "tools": [_tool(mapping(tool)) for tool in tools] if isinstance(tools, list) else tools,
            "max_tokens": given.get("max_output_tokens"),
            "reasoning_effort": mapping(given.get("reasoning")).get("effort"),
            "response_format": mapping(given.get("text")).get("format"),
            "logprobs": bool(logprobs),
        }
    )


def completion(text: str, usage: Usage | None, call: HarnessCall, *, name: str, t: int) -> dict[str, Any]:
    """Turn t as a response; the arguments are those of `calls.completion`."""
    whole = calls.completion(text, usage, call, name=name, t=t)
    message, used = whole["choices"][0]["message"], whole["usage"]
    output: list[dict[str, Any]] = []
    if message["content"] is not None:
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        output.append(_item("message", f"msg_{name}", role="assistant", content=[part]))
    for at, called in enumerate(message.get("tool_calls", ())):
        output.append(_item("function_call", f"fc_{name}_{at}", call_id=called["id"], **called["function"]))
    cached, reasoning = (usage.cached or 0, usage.reasoning) if usage is not None else (0, 0)
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": call.model,
        "output": output,
        "usage": {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": used["total_tokens"],
        },
        "store": False,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        **dict.fromkeys(("error", "incomplete_details", "instructions", "previous_response_id")),
    }


def streamed(whole: Body, call: HarnessCall) -> bytes:
    """The same response as server-sent events."""
    events = enumerate(_events(whole))
    lines = [
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': n, **event})}\n\n"
        for n, (kind, event) in events
    ]
    return "".join(lines).encode()


def _events(whole: Body) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for at, item in enumerate(whole["output"]):
        where = {"item_id": item["id"], "output_index": at}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield (
            "response.output_item.added",
            {"output_index": at, "item": item | empty | {"status": "in_progress"}},
        )
        if item["type"] == "message":
            (part,) = item["content"]
            where["content_index"] = 0
            yield "response.content_part.added", {**where, "part": part | {"text": ""}}
            yield "response.output_text.delta", {**where, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**where, "part": part}
        else:
            said = item["arguments"]
            yield "response.function_call_arguments.delta", {**where, "delta": said}
            yield (
                "response.function_call_arguments.done",
                {**where, "name": item["name"], "arguments": said},
            )
        yield "response.output_item.done", {"output_index": at, "item": item}
    yield "response.completed", {"response": whole}


def _messages(given: Body) -> list[dict[str, Any]]:
    """The messages of a call's instructions and items."""
    items, messages = given["input"], list[dict[str, Any]]()
    if given.get("instructions"):
        messages.append({"role": "system", "content": given["instructions"]})
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for number, item in enumerate(map(mapping, items), start=1):
        kind = item.get("type") or "message"
        if kind not in _ITEMS:
            raise _not_supported(f"input item {number} of type {kind!r}: expected {', '.join(_ITEMS)}")
        try:
            add_item(messages, item, ImportSettings(), Place(Path("input"), f"item {number}"))
        except DataError as error:
            raise _not_supported(str(error)) from None
    return messages


def _tool(tool: Body) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise _not_supported(
            f"a tool of type {tool.get('type')!r}: expected functions, which the harness runs itself"
        )
    return {
        "type": "function",
        "function": {name: tool[name] for name in _FUNCTION if tool.get(name) is not None},
    }


def _item(kind: str, id_: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": id_, "status": "completed", **fields}


def _not_supported(why: str) -> Refused:
    return Refused(400, "not_supported", why)
