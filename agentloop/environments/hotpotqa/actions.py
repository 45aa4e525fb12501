"""From the raw text of a turn to the one action in it, and back; two formats.

tags    Search-R1's: <search> query </search> or <answer> answer </answer>
tools   Hermes' calls: <tool_call>{"name": "search", "arguments": {"query": ...}}</tool_call>, or <answer>

The first action after a turn's reasoning counts. As in Search-R1, text after the first </search> (else the
first </answer>) is not acted on; it stays in the context, since nothing that was sampled is rewritten. The
closing tag is part of the turn: a server that stops at it must include the stop string.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from occupancy.record.finish import after_reasoning

STOP = {"tags": ("</search>", "</answer>"), "tools": ("</tool_call>", "</answer>")}
"""Strings at which a policy may stop a turn, if it includes them in the text."""
TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search an encyclopaedia; returns the best matching passages.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What to look for."}},
                "required": ["query"],
            },
        },
    },
)
"""What a chat template is given as `tools` in the tools format."""

_FIRST = {
    "tags": re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL),
    "tools": re.compile(r"<(tool_call|answer)>(.*?)</\1>", re.DOTALL),
}
_OPENED = re.compile(r"<(search|answer|tool_call)>")


@dataclass(frozen=True, slots=True)
class Action:
    """What a turn does."""

    kind: str
    """search, answer, or none."""
    content: str = ""
    """The query or the answer, blanks around it taken off."""
    status: str = "ok"
    """ok; trailing_text (the first action counts, what follows it does not); or why there is no action:
    no_action, unclosed, empty_query, bad_json, unknown_tool, bad_arguments."""


def parse_action(text: str, *, format: str) -> Action:
    """The action of a turn; text of any kind gives one, hostile text included."""
    text = after_reasoning(text)
    acted_on = cut_turn(text, STOP[format])
    found = _FIRST[format].search(acted_on)
    if found is None:
        return Action("none", status="unclosed" if _OPENED.search(acted_on) else "no_action")
    status = "ok" if not text[found.end() :].strip() else "trailing_text"
    content = found[2].strip()
    if found[1] == "answer":
        return Action("answer", content, status)
    query, fault = _called(content) if found[1] == "tool_call" else (content, "")
    if fault or not query:
        return Action("none", status=fault or "empty_query")
    return Action("search", query, status)


def write_turn(thought: str, kind: str, content: str, *, format: str) -> str:
    """A turn that thinks and acts; `parse_action` reads it back where the words hold no tag."""
    if kind == "search" and format == "tools":
        call = json.dumps({"name": "search", "arguments": {"query": content}}, ensure_ascii=False)
        return f"<think>{thought}</think>\n<tool_call>\n{call}\n</tool_call>"
    return f"<think>{thought}</think>\n<{kind}>{content}</{kind}>"


def cut_turn(text: str, closings: tuple[str, ...]) -> str:
    """The text up to the first of these closing tags that occurs in it, tag included."""
    for closing in closings:
        if closing in text:
            return text[: text.index(closing) + len(closing)]
    return text


def _called(content: str) -> tuple[str, str]:
    """The query of a call, or why there is none; some models write the arguments as a string of JSON."""
    call = _read_json(content)
    if not isinstance(call, dict):
        return "", "bad_json"
    if call.get("name") != "search":
        return "", "unknown_tool"
    arguments = call.get("arguments")
    if isinstance(arguments, str):
        arguments = _read_json(arguments)
    query = arguments.get("query") if isinstance(arguments, dict) else None
    return (query.strip(), "") if isinstance(query, str) else ("", "bad_arguments")


def _read_json(text: str) -> Any:
    """The value of a JSON text; None where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
