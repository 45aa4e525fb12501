"""Students and teachers of the frameworks' games: they read their contexts; a student errs by its seed."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

from agentloop.types import Answer, Ask, Traits, Usage

LETTERS = "EAIRTONSLCUDPMHGBFYWKVXZJQ"


class Player:
    traits = Traits(most_output=60)

    def __init__(self, turn: Callable[[Ask, bool], str], errs: float) -> None:
        self._turn, self._errs = turn, errs

    async def __call__(self, ask: Ask) -> Answer:
        text = self._turn(ask, random.Random(ask.seed).random() < self._errs)
        return Answer(text, Usage(2 + len(text) // 4, "toy"))


def _called(name: str, **arguments: Any) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def sum_of_three(ask: Ask, wrong: bool) -> str:
    """Adds three numbers by two calls of a tool, then submits the sum."""
    question = next(m.content for m in ask.context if m.role == "user")
    a, b, c = map(int, re.findall(r"\d+", question)[:3])
    replies = [m.content for m in ask.context if m.role == "tool"]
    if len(replies) < 2:
        x, y = (a, b) if not replies else (int(replies[0]), c)
        return _called("add", x=x, y=y + wrong)
    return _called("submit", answer=replies[1])


def letter(ask: Ask, wrong: bool) -> str:
    """The most frequent letter that was not guessed yet."""
    said = " ".join(m.content for m in ask.context if m.role == "assistant")
    left = [c for c in LETTERS if f"[{c}]" not in said] or ["A"]
    return f"I guess [{random.Random(ask.seed).choice(left) if wrong else left[0]}]"


def number(ask: Ask, wrong: bool) -> str:
    """The middle of what the hints leave, or the number after it."""
    low, high = 1, 20
    for said, heard in zip(ask.context[2::2], ask.context[3::2], strict=False):
        guessed = int(re.findall(r"\d+", said.content)[-1])
        if "higher" in heard.content:
            low = max(low, guessed + 1)
        elif "lower" in heard.content:
            high = min(high, guessed - 1)
    return f"[{random.Random(ask.seed).randint(1, 20) if wrong else (low + high) // 2}]"


def adding_student() -> Player:
    return Player(sum_of_three, 0.5)


def adding_teacher() -> Player:
    return Player(sum_of_three, 0.0)


def spelling_student() -> Player:
    return Player(letter, 0.5)


def spelling_teacher() -> Player:
    return Player(letter, 0.0)


def guessing_student() -> Player:
    return Player(number, 0.7)


def guessing_teacher() -> Player:
    return Player(number, 0.0)
