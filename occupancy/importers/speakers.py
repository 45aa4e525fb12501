"""Speakers of training data (LLaMA-Factory, ms-swift, ChatGLM, OLMo) as roles; their items that are calls.

An item of a call, or of several, belongs to the turn before it where the assistant has just spoken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from occupancy.importers.files import Place, listed, parse
from occupancy.record.errors import DataError

SPEAKERS = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "tool": "tool",
    "function": "function",
    "observation": "tool",
    "tool_response": "tool",
    "environment": "tool",
}
_CALLS = ("function_call", "tool_call")
_THOUGHT = re.compile(r"\s*<think>.*?</think>\s*", re.DOTALL)


def with_roles(items: Sequence[Any], place: Place) -> Iterator[tuple[dict[str, Any], Place]]:
    """Messages with the roles of OpenAI's interface, each with its place; several calls are one message."""
    held: tuple[dict[str, Any], Place] | None = None
    spoken = False
    for number, item in enumerate(items, start=1):
        here = place.within(f"message {number}")
        message, is_call = _message(item, here)
        if held is not None and is_call and spoken and (calls := listed(message.get("tool_calls"))):
            held[0]["tool_calls"] = [*listed(held[0].get("tool_calls")), *calls]
            continue
        if held is not None:
            yield held
        held, spoken = (message, here), message["role"] == "assistant"
    if held is not None:
        yield held


def _message(item: Any, place: Place) -> tuple[dict[str, Any], bool]:
    """A message, and whether it is an item of calls."""
    role = item.get("role") if isinstance(item, Mapping) else item
    if not isinstance(item, Mapping) or not isinstance(role, str) or role not in SPEAKERS:
        raise place.refuse(f"role {role!r}: expected one of {', '.join(SPEAKERS)}")
    message = {**item, "role": SPEAKERS[role]}
    if role in _CALLS:
        thought, calls = _calls(item.get("content"), place)
        if calls:
            message |= {"content": thought or None, "tool_calls": calls}
    return message, role in _CALLS


def _calls(said: Any, place: Place) -> tuple[str, list[Any]]:
    """Reasoning and calls of a text; no calls where it holds none, and stays the turn's text."""
    thought = _THOUGHT.match(said) if isinstance(said, str) else None
    try:
        found = parse(said[thought.end() if thought else 0 :], place) if isinstance(said, str) else said
    except DataError:
        return "", []
    calls = found if isinstance(found, list) else [found]
    named = all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls)
    return (thought[0].strip() if thought else "", calls) if named else ("", [])
