"""Tool calls as text, and text as tool calls.

In a run a turn is one text, calls included (`occupancy.record.calls`). Several replies to one turn are one
text too, with `NEXT_REPLY` between them, and tools that come with a task are described at the end of its
system message (`with_tools`): all three as Hermes' and Qwen's templates write them. A provider with a tool
interface is sent tools, calls and replies in its own form, made from that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from typing import Any

from agentloop.types import Message

NEXT_REPLY = "\n</tool_response>\n<tool_response>\n"
"""Between the replies to several calls of one turn."""
_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_END = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

_START = re.compile(r"\n?<tool_call>\s*")
_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*', re.DOTALL)
_END = re.compile(r"\}\s*</tool_call>")
_END_AFTER_JSON = re.compile(rf"\s*{_END.pattern}")
_JSON = json.JSONDecoder()


def calls_in(text: str) -> tuple[str, list[tuple[str, str]]]:
    """What a turn says, and its calls; a block that is no call stays in the text."""
    said, calls, at = "", [], 0
    while start := _START.search(text, at):
        found = _call_from(text, start.end())
        if found is None:
            said += text[at : start.end()]
            at = start.end()
            continue
        said += text[at : start.start()]
        call, at = found
        calls.append(call)
    return said + text[at:], calls


def called(function: Mapping[str, Any]) -> tuple[str, str]:
    """A call's name and arguments, which some give as an object; TypeError for a name that is no text."""
    name, arguments = function["name"], function["arguments"]
    if not isinstance(name, str):
        raise TypeError(f"a call's name is {name!r}")
    return name, arguments if isinstance(arguments, str) else json.dumps(arguments)


def _call_from(text: str, begin: int) -> tuple[tuple[str, str], int] | None:
    """The call that begins there, and where it ends: arguments may hold an end tag themselves.

    It ends at the tag after arguments in JSON, else at the first that leaves the form of a call.
    """
    head = _HEAD.match(text, begin)
    if head is None or _end_of_json(text, head.start(1)) is None:
        return None
    stop = _end_of_json(text, head.end())
    end = None if stop is None else _END_AFTER_JSON.match(text, stop)
    if end is None:
        end = _END.search(text, head.end())
        stop = end and end.start()
    return end and ((json.loads(head[1]), text[head.end() : stop].strip()), end.end())


def _end_of_json(text: str, begin: int) -> int | None:
    """Where the JSON value that begins there ends; None where there is none."""
    try:
        return _JSON.raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def plain_messages(context: Sequence[Message]) -> list[dict[str, Any]]:
    """A context for a provider that is given text alone: a tool's reply becomes a user's message.

    Messages of one role in a row become one: some providers refuse them.
    """
    roles = groupby(context, key=lambda m: "user" if m.role == "tool" else m.role)
    return [{"role": role, "content": "\n\n".join(m.content for m in row)} for role, row in roles]


def tool_messages(context: Sequence[Message]) -> list[dict[str, Any]]:
    """A context with calls and replies in the form of a provider's tool interface.

    Calls are numbered in order. Replies are given to the calls in their order; one reply to several calls
    answers the first, and the others get an empty one, since providers refuse a call without a reply. A turn
    with arguments that are no JSON object is sent as text: servers refuse every conversation that holds such
    a call. A reply to a turn without a call is a user's message.
    """
    messages: list[dict[str, Any]] = []
    open_calls: list[str] = []
    ids = (f"call_{number}" for number in count())
    for message in context:
        if message.role == "assistant":
            said, calls = calls_in(message.content)
            if not all(_is_object(arguments) for _, arguments in calls):
                said, calls = message.content, []
            open_calls = [next(ids) for _ in calls]
            entry: dict[str, Any] = {"role": "assistant", "content": said if said or not calls else None}
            if calls:
                named = zip(open_calls, calls, strict=True)
                entry["tool_calls"] = [call_entry(id_, name, arguments) for id_, (name, arguments) in named]
            messages.append(entry)
        elif open_calls:
            replies = message.content.split(NEXT_REPLY)
            if len(replies) != len(open_calls):
                replies = [message.content, *[""] * (len(open_calls) - 1)]
            for id_, content in zip(open_calls, replies, strict=True):
                messages.append({"role": "tool", "tool_call_id": id_, "content": content})
            open_calls = []
        else:
            messages += plain_messages([message])
    return messages


def with_tools(system: str, tools: Iterable[Mapping[str, Any]]) -> str:
    """A system message with the descriptions of tools at its end."""
    described = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in tools)
    return f"{system}\n\n{_TOOLS}{described}{_TOOLS_END}" if system else f"{_TOOLS}{described}{_TOOLS_END}"


def offered_tools(context: Sequence[Message]) -> tuple[list[dict[str, Any]], Sequence[Message]]:
    """The tools that `with_tools` has described in a context, and the context without them."""
    first = context[0]
    if first.role != "system" or not first.content.endswith(_TOOLS_END) or _TOOLS not in first.content:
        return [], context
    system, _, described = first.content.removesuffix(_TOOLS_END).rpartition(_TOOLS)
    try:
        tools = [json.loads(line) for line in described.split("\n") if line]
    except (ValueError, RecursionError):  # a system message that only looks like one of ours
        return [], context
    said = system.removesuffix("\n\n")
    return tools, ((replace(first, content=said),) if said else ()) + tuple(context[1:])


def call_entry(id_: str, name: str, arguments: str) -> dict[str, Any]:
    """A call in the form of a tool interface."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
