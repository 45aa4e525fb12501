"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | .., "value"}], ..}, as a JSON list or JSONL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects, listed, parse
from occupancy.importers.records import episode_of

ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "observation": "tool",
    "tool": "tool",
    "tool_response": "tool",
}
_CALLS = ("function_call", "tool_call")


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; items with `role` and `content` are read as they are."""
    for record, place in json_objects(file, settings.progress):
        conversation = record.get("conversations")
        if not isinstance(conversation, list):
            raise place.refuse("no list under 'conversations': expected {from, value} items")
        messages: list[dict[str, Any]] = []
        for number, item in enumerate(conversation, start=1):
            message = _message(item, place.within(f"message {number}"))
            before = listed(messages[-1].get("tool_calls")) if messages else []
            if before and listed(message.get("tool_calls")):  # parallel calls are one turn
                messages[-1]["tool_calls"] = [*before, *message["tool_calls"]]
            else:
                messages.append(message)
        yield episode_of(record, messages, settings, place, used=("conversations",))


def _message(item: Any, place: Place) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise place.refuse(f"{item!r}: expected an object {{from, value}}")
    speaker = item.get("from", item.get("role"))
    if not isinstance(speaker, str) or speaker not in ROLES:
        raise place.refuse(f"speaker {speaker!r}: expected one of {', '.join(ROLES)}")
    said = item.get("value", item.get("content"))
    message = {name: value for name, value in item.items() if name not in ("from", "value")}
    message |= {"role": ROLES[speaker], "content": said}
    if speaker in _CALLS:
        call = _call(said, place)
        if call is not None:
            message |= {"content": None, "tool_calls": [call]}
    return message


def _call(said: Any, place: Place) -> Any:
    """The call that a text holds; None where it is no call, and stays the turn's text."""
    if not isinstance(said, str):
        return said
    from occupancy.record.errors import DataError

    try:
        call = parse(said, place)
    except DataError:
        return None
    return call if isinstance(call, dict) and isinstance(call.get("name"), str) else None
