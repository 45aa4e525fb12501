"""How a turn ended, whether it can be trained on, and how many of its tokens are in its text."""

from __future__ import annotations

import re

ENDED = {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "tool_use", "function_call"}
"""Finish reasons of a turn that its model ended."""
CUT = {
    *("", "length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded"),
    *("abort", "cancelled", "timeout", "insufficient_system_resource", "content_filter"),
}
"""Finish reasons of a turn that was cut; '' where the server names none."""
UNKNOWN = "unknown: "

_TAGS = "think|thinking|thought|reasoning|seed:think"
_CLOSED = re.compile(rf"</(?:{_TAGS})>|\[/THINK\]")
REASONING = rf"(?:<(?:{_TAGS})>|\[THINK\])"
"""Regular expression of what begins a block of reasoning."""
_BEGINS, _BEGUN = re.compile(REASONING), re.compile(rf"\s*{REASONING}")
_OPEN = re.compile(rf"{REASONING}.*", re.DOTALL)
_UNSEEN = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"))
"""Characters that show nothing, and are no blanks to `strip`."""


def read_finish(word: object) -> str:
    """stop; length for a turn that was cut; 'unknown: WORD' for a word that is known as neither."""
    told = "" if word is None else str(word).strip()
    if told.lower() in ENDED:
        return "stop"
    return "length" if told.lower() in CUT else f"{UNKNOWN}{told[:60]}"


def after_reasoning(text: str) -> str:
    """What a turn says after the reasoning that begins it; all of it where nothing follows.

    Reasoning is no action. The prompt may have opened the block that the turn ends. A block after something
    else is no beginning.
    """
    said = text
    while end := _CLOSED.search(said):
        begun = _BEGUN.match(said)
        if not (begun or said is text) or _BEGINS.search(said, begun.end() if begun else 0, end.start()):
            break
        said = said[end.end() :]
    return said if said.strip() else text


def without_reasoning(text: str) -> str:
    """What follows the last block of reasoning that a text ends."""
    return _CLOSED.split(text)[-1]


def has_text(text: str) -> bool:
    """Whether a turn says something beside reasoning, which may be left open, and blanks, seen or not."""
    said = _OPEN.sub("", without_reasoning(text))
    return bool(said.translate(_UNSEEN).strip())


def is_target(text: str, finish_reason: str) -> bool:
    """Whether a teacher's turn can be trained on: its model ended it, and it has text."""
    return finish_reason == "stop" and has_text(text)


def retained_tokens(text: str, output: int, reasoning: int) -> int:
    """Output tokens that are in a turn's text: those of C_tr.

    Reasoning that the provider kept apart is billed, and counts in C_i, but nothing trains on it. A thought
    with fewer bytes than the reasoning has tokens is another one, which the prompt has asked for.
    """
    thought = text[: len(text) - len(without_reasoning(text))]
    kept = len(thought.encode("utf-8", "surrogatepass")) >= reasoning
    return output if kept else output - min(reasoning, output)
