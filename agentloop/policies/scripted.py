"""What scripted policies share: settings from `scripted:NAME=VALUE,…`, and a turn with its token count."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agentloop.types import Answer, Ask, Policy, PolicyFailed, Traits, Usage
from occupancy.record.errors import InputError
from occupancy.record.specs import read

NAME = "scripted"
Settings = TypeVar("Settings")
WORDS_AND_MARKS = "words-and-marks"
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def settings_from(text: str, record: type[Settings]) -> Settings:
    """The dataclass `record` with what `text` changes; InputError for an unknown name or a wrong value."""
    return read(record, filter(None, text.partition(":")[2].split(",")), of=f"student {text!r}")


def own_policy(
    spec: str,
    teachers: Mapping[str, Callable[[], Policy]],
    record: type[Settings],
    student: Callable[[Settings], Policy],
) -> Policy | None:
    """A benchmark's scripted policy: a teacher by name, or `scripted` with settings; None for any other."""
    if spec in teachers:
        return teachers[spec]()
    return student(settings_from(spec, record)) if spec.partition(":")[0] == NAME else None


def check_question(question: str, arguments: Mapping[str, Any], *known: str) -> None:
    """Refuse what an environment does not answer a scripted policy; arguments are never taken."""
    if question not in known or arguments:
        expected = " or ".join(map(repr, known))
        raise InputError(
            f"question {question!r} with {sorted(arguments)}: expected {expected}, without arguments"
        )


def words_and_marks(text: str) -> list[int]:
    """Ends of words and punctuation marks in a text, as offsets: tokens where there is no tokenizer."""
    return [found.end() for found in _WORD_OR_MARK.finditer(text)]


def scripted_turn(text: str) -> Answer:
    """A scripted policy's turn; its tokens are words, marks, and one for the end."""
    return Answer(text, Usage(output=len(words_and_marks(text)) + 1, counter=WORDS_AND_MARKS))


class BoundedScript:
    """A scripted teacher that says how long its turns are, so that a budget needs no --turn-tokens."""

    def __init__(self, play: Callable[[Ask], Awaitable[str]], *, most: int) -> None:
        self._play, self.traits = play, Traits(most_output=most)
        self._most = most

    async def __call__(self, ask: Ask) -> Answer:
        """The turn that `play` gives; PolicyFailed where it is longer than its bound."""
        answer = scripted_turn(await self._play(ask))
        if answer.usage.output > self._most:
            raise PolicyFailed(f"a turn of {answer.usage.output} tokens: expected at most {self._most}")
        return answer
