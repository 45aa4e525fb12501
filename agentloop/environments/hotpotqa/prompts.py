"""The prompts and notices of the environment, everything but passages; a TOML file replaces any of them.

{question} and {turns} are filled in. A file has some of the fields of `Prompts` as its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path

from occupancy.record.errors import InputError
from occupancy.record.reading import read_toml


@dataclass(frozen=True)
class Prompts:
    """The environment's words in one action format."""

    system: str
    """System message; empty: there is none."""
    task: str
    """First user message."""
    invalid: str
    """Observation after a turn without an action."""
    nothing_found: str
    """In place of passages."""
    last_turn: str
    """Added to the observation, or to `task`, before the last turn."""

    def __post_init__(self) -> None:
        if "{question}" not in self.task:
            raise InputError("the prompt `task` has no {question}: the model would not know what is asked")

    @property
    def hash(self) -> str:
        """8 hex digits: results under other words are other results."""
        words = "\x1f".join(getattr(self, field.name) for field in fields(self))
        return blake2b(words.encode(), digest_size=4).hexdigest()


def _words(look_up: str, act: str) -> Prompts:
    """The default words, given how a format looks something up, and how a turn acts."""
    return Prompts(
        system="You answer questions with the help of an encyclopaedia that you can search.",
        task="Answer the question below. You have at most {turns} turns, and the last one must give the "
        "answer.\nIn each turn, first think between <think> and </think>. Then do one of two things.\n"
        f"To look something up, {look_up}\n"
        "To finish, write the answer between <answer> and </answer>. Keep it as short as it can be: a name, "
        "a date, a number, yes or no.\n\nQuestion: {question}",
        invalid="There was no action in this turn, and it is used up. "
        f"{act} the answer between <answer> and </answer>.",
        nothing_found="Nothing was found. Try other words.",
        last_turn="This is your last turn. Give your best answer now.",
    )


DEFAULTS = {
    "tags": _words(
        "write a query between <search> and </search>. What is found comes back between <information> and "
        "</information>.",
        "Write a query between <search> and </search>, or",
    ),
    "tools": _words("call the tool `search` with a query.", "Call the tool `search` with a query, or write"),
}


def load_prompts(format: str, file: Path | None) -> Prompts:
    """The words of a format, with those of a TOML file in their place."""
    if file is None:
        return DEFAULTS[format]
    given = read_toml(file, what="prompts", then="expected a TOML file", error=InputError)
    known = [field.name for field in fields(Prompts)]
    for name, words in given.items():
        if name not in known or not isinstance(words, str):
            raise InputError(f"prompts {file}: {name!r}: expected texts named {', '.join(known)}")
    return replace(DEFAULTS[format], **given)
