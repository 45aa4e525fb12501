"""What scripted policies share: settings from `scripted:NAME=VALUE,…`, and a turn with its token count."""

from __future__ import annotations

import re
from typing import TypeVar

from agentloop.types import Answer, Usage
from occupancy.record.specs import read

NAME = "scripted"
Settings = TypeVar("Settings")
WORDS_AND_MARKS = "words-and-marks"
_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


def settings_from(text: str, record: type[Settings]) -> Settings:
    """The dataclass `record` with what `text` changes; InputError for an unknown name or a wrong value."""
    return read(record, filter(None, text.partition(":")[2].split(",")), of=f"student {text!r}")


def words_and_marks(text: str) -> list[int]:
    """Ends of words and punctuation marks in a text, as offsets: tokens where there is no tokenizer."""
    return [found.end() for found in _WORD_OR_MARK.finditer(text)]


def scripted_turn(text: str) -> Answer:
    """A scripted policy's turn; its tokens are words, marks, and one for the end."""
    return Answer(text, Usage(output=len(words_and_marks(text)) + 1, counter=WORDS_AND_MARKS))
