"""Lists of role and content as turns: what chat, verl, TRL and Inspect have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from occupancy.importers.episodes import (
    ImportedEpisode,
    ImportedTurn,
    ImportSettings,
    Place,
    author_of,
    reward_of,
    task_of,
    text_of,
    with_calls,
)
from occupancy.record.finish import read_finish
from occupancy.record.usage import read_counts

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def episode_of(
    record: Mapping[str, Any], messages: Any, settings: ImportSettings, place: Place
) -> ImportedEpisode:
    """The episode of a record's messages; the record names its task and its reward."""
    prompt, turns = read_messages(messages, settings, place)
    task, R = task_of(record, settings, place), reward_of(record, settings, place)
    return ImportedEpisode(task, prompt, turns, str(place), R)


def read_messages(
    messages: Any, settings: ImportSettings, place: Place, *, model: str = ""
) -> tuple[tuple[tuple[str, str], ...], tuple[ImportedTurn, ...]]:
    """Prompt and turns: every assistant message is a turn, what follows until the next is the reply to it."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise place.refuse("no messages: expected a list of {role, content}")
    prompt: list[tuple[str, str]] = []
    turns: list[ImportedTurn] = []
    for number, message in enumerate(messages, start=1):
        here = place.within(f"message {number}")
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            role = message.get("role") if isinstance(message, Mapping) else message
            raise here.refuse(f"role {role!r}: expected one of {', '.join(ROLES)}")
        text = text_of(message.get("content"), here)
        if message["role"] == "assistant":
            turns.append(_turn(message, text, settings, here, model=str(message.get("model") or model)))
        elif turns:
            before = turns[-1].observation
            turns[-1] = replace(turns[-1], observation=f"{before}\n{text}" if before else text)
        else:
            prompt.append((message["role"], text))
    if not turns:
        raise place.refuse("no assistant message: an episode has a turn at least")
    return tuple(prompt), tuple(turns)


def _turn(
    message: Mapping[str, Any], text: str, settings: ImportSettings, place: Place, *, model: str
) -> ImportedTurn:
    """A turn; its `usage` and `finish_reason` are read like a server's, where it has them."""
    said = with_calls(text, _calls(message.get("tool_calls"), place))
    counts = read_counts(message.get("usage"))
    if counts is not None and counts.output == 0 and said:
        counts = None  # a text is never free: the zeros are no count
    output, reasoning, prompt, cached = counts or (None, 0, None, None)
    return ImportedTurn(
        author_of(message.get("author"), model, settings, place),
        said,
        "",
        output_tokens=output,
        reasoning_tokens=reasoning,
        prompt_tokens=prompt,
        cached_tokens=cached,
        model=model,
        finish_reason=read_finish(message["finish_reason"]) if "finish_reason" in message else "stop",
    )


def _calls(calls: Any, place: Place) -> list[tuple[Any, Any]]:
    """(name, arguments) of tool calls in the OpenAI form or in Inspect's."""
    found = []
    for call in calls if calls is not None else ():
        inner = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(inner, Mapping):
            name, given = inner.get("name"), inner.get("arguments")
        elif isinstance(call, Mapping):
            name, given = inner or call.get("name"), call.get("arguments")
        else:
            raise place.refuse(f"tool call {call!r}: expected an object")
        if not isinstance(name, str):
            raise place.refuse(f"a tool call has the name {name!r}: expected text")
        if isinstance(given, str):
            with suppress(ValueError):  # the model's own broken arguments are kept as it wrote them
                given = json.loads(given)
        found.append((name, given))
    return found
