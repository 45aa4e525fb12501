"""Items of OpenAI's Responses interface as messages: what Codex and mini-swe-agent store.

Reasoning, texts and calls up to the next reply are one assistant message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from occupancy.importers.episodes import ImportSettings
from occupancy.importers.files import Place, lines, listed, mapping
from occupancy.importers.messages import content_text

Message = dict[str, Any]


def add_item(
    messages: list[Message], item: Mapping[str, Any], settings: ImportSettings, place: Place
) -> None:
    """Append one item to the messages, or to the assistant's message that is open."""
    kind = str(item.get("type") or "message")
    if kind == "message" and item.get("role") != "assistant":
        messages.append({"role": item.get("role"), "content": item.get("content")})
    elif kind.endswith("_output"):
        reply = {"tool_call_id": item.get("call_id"), "content": _output(item.get("output"))}
        messages.append({"role": "tool", **reply})
    elif kind == "message":
        _open(messages)["content"] += content_text(item.get("content"), settings, place)
    elif kind == "reasoning":
        parts = map(mapping, (*listed(item.get("summary")), *listed(item.get("content"))))
        thought = "\n".join(str(part["text"]) for part in parts if part.get("text"))
        if not thought:
            settings.left_out["encrypted reasoning"] += 1
            return
        message = _open(messages)
        message["reasoning_content"] = lines(message["reasoning_content"], thought)
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        _open(messages)["tool_calls"].append({"id": item.get("call_id"), "function": function})
    elif kind == "custom_tool_call":
        custom = {"name": item.get("name"), "input": item.get("input")}
        _open(messages)["tool_calls"].append({"custom": custom})
    elif kind == "local_shell_call":
        _open(messages)["tool_calls"].append({"name": "local_shell", "arguments": item.get("action")})
    elif kind == "web_search_call":
        raise place.refuse("a search by the provider: what the model read is not in the file")
    elif kind == "ghost_snapshot":  # of the working tree, for an undo
        settings.left_out["snapshot"] += 1
    else:
        raise place.refuse(f"item of type {kind!r}: it cannot be imported")


def items_of(response: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The items of a response."""
    return [item for item in listed(response.get("output")) if isinstance(item, Mapping)]


def _open(messages: list[Message]) -> Message:
    if not messages or messages[-1]["role"] != "assistant" or messages[-1].get("usage"):
        messages.append({"role": "assistant", "content": "", "reasoning_content": "", "tool_calls": []})
    return messages[-1]


def _output(output: Any) -> Any:
    if not isinstance(output, Mapping):
        return output
    # An object without a text is refused where messages are read, and not taken for an empty reply.
    return next((output[name] for name in ("content", "output") if name in output), output)
