"""What rendering reads and what it makes.

TraceMessage  one message of an accepted trace: who wrote it, and whether it is trained on
Span          a run of ids of a row, with its author
TrainingRow   ids of one training row, which of them are targets, and how deep each target is
LengthRule    what happens to turns and rows that are too long
Rendered      the rows of one trace, and what the rules took away

Letters: S ids of a row. A target is an id that the model must predict from the ids before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from occupancy.record.errors import DataError, InputError
from occupancy.record.finish import has_text
from occupancy.record.rows import storable

Ids = NDArray[np.int32]
Flags = NDArray[np.bool_]

ROLES = ("system", "user", "assistant", "tool")
AUTHORS = ("task", "environment", "student", "teacher")
_REQUIRED = {"role", "content", "author", "train"}
_OPTIONAL = {"token_ids", "finish_reason"}


@dataclass(frozen=True, slots=True)
class TraceMessage:
    """One message of a trace; nothing about it is guessed."""

    role: str
    content: str
    """The raw text, an assistant turn as it was sampled."""
    author: str
    """student or teacher for an assistant turn, else task or environment."""
    train: bool
    token_ids: tuple[int, ...] | None = None
    """Sampled ids of the turn, with or without the token that closed it; they win over encoding."""
    finish_reason: str = "stop"
    """length: the turn was cut, and is never a target."""

    @property
    def no_target(self) -> str:
        """Why a turn that is marked for training is no target: `cut`, or `empty` (a model would learn to
        stop at once); else nothing."""
        if self.finish_reason != "stop":
            return "cut"
        return "" if has_text(self.content) else "empty"

    @property
    def is_target(self) -> bool:
        """Whether the turn is trained on, before length rules."""
        return self.train and not self.no_target

    def __post_init__(self) -> None:
        if self.role not in ROLES or self.author not in AUTHORS:
            raise DataError(
                f"a message has role {self.role!r} and author {self.author!r}: expected a role of "
                f"{ROLES} and an author of {AUTHORS}"
            )
        if (self.role == "assistant") != (self.author in ("student", "teacher")):
            raise DataError(
                f"a message has role {self.role!r} and author {self.author!r}: student and teacher write "
                f"assistant turns, and no other author does"
            )
        if self.train and self.author != "teacher":
            raise DataError(
                f"a message by {self.author!r} is marked for training: only the teacher's turns are targets"
            )


@dataclass(frozen=True, slots=True)
class Span:
    """ids[start:stop] of a row."""

    start: int
    stop: int
    author: str
    """task, environment, student, teacher, or template for what no message says."""
    message: int
    """Index of the message it comes from; -1 for the template."""
    target: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRow:
    """One training row."""

    ids: Ids
    """[S]"""
    targets: Flags
    """[S] true where the id is to be predicted."""
    depth: NDArray[np.int16]
    """[S] j of the teacher turn a target belongs to, from 1 within the trace; 0 elsewhere."""
    spans: tuple[Span, ...]
    """In order, without gaps, over all S ids."""
    drift: bool
    """Encoding the row's text at once would give other ids."""

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.targets) == len(self.depth):
            raise DataError(
                f"a row has {len(self.ids)} ids, {len(self.targets)} targets and {len(self.depth)} depths: "
                f"expected equal lengths"
            )
        if not self.targets.any() or self.targets[0]:
            raise DataError("a row needs a target, and its first id cannot be one: it has no context")


class Overflow(StrEnum):
    """What a row longer than `row_tokens` becomes; cuts are at turn boundaries only."""

    DROP = "drop"
    """The row is left out."""
    HEAD = "head"
    """The row ends after the last teacher turn that fits; later turns are left out."""
    TAIL = "tail"
    """The oldest turns after the task are left out: the contexts differ from those that were sampled."""


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Limits on what is trained on; applied before C_tr is counted."""

    row_tokens: int | None = None
    """Most ids of a row; None = no limit."""
    turn_tokens: int | None = None
    """Most ids of one teacher turn with its closing token; a longer one is no target. None = no limit."""
    overflow: Overflow = Overflow.DROP

    def __post_init__(self) -> None:
        for name, value in (("row_tokens", self.row_tokens), ("turn_tokens", self.turn_tokens)):
            if value is not None and value < 2:
                raise InputError(f"{name}={value}: expected None or at least 2 ids")
        object.__setattr__(self, "overflow", Overflow(self.overflow))


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rows of one trace."""

    rows: tuple[TrainingRow, ...]
    """Empty where nothing could be trained on."""
    kept: tuple[int, ...]
    """Indices of the messages that are targets: C_tr is the sum of their output tokens."""
    dropped: tuple[tuple[int, str], ...]
    """Teacher turns that are no targets, with the reason: cut, empty, turn_tokens or row_tokens."""

    @property
    def target_tokens(self) -> int:
        """Ids that are trained on."""
        return sum(int(row.targets.sum()) for row in self.rows)

    @property
    def sequence_tokens(self) -> int:
        """All ids of the rows."""
        return sum(len(row.ids) for row in self.rows)


def read_messages(text: str, *, trace: str = "trace") -> tuple[TraceMessage, ...]:
    """Messages from the JSON of a trace; a missing or unknown key is named, never filled in."""
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise DataError(f"{trace}: messages are not JSON ({error}): expected a list of objects") from error
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in entries):
        raise DataError(f"{trace}: expected a JSON list of message objects, and at least one")
    return tuple(_message(entry, f"{trace}, message {i}") for i, entry in enumerate(entries))


def write_messages(messages: Sequence[TraceMessage]) -> str:
    """JSON of a trace's messages; `read_messages` gives them back."""
    left_out = {"token_ids": None, "finish_reason": "stop"}.items()
    entries = [dict(cell for cell in asdict(m).items() if cell not in left_out) for m in messages]
    return json.dumps(entries, ensure_ascii=False)


def _message(entry: dict[str, Any], where: str) -> TraceMessage:
    missing, unknown = _REQUIRED - set(entry), set(entry) - _REQUIRED - _OPTIONAL
    if missing or unknown:
        raise DataError(f"{where}: lacks {sorted(missing)} and has unknown {sorted(unknown)}")
    if not isinstance(entry["content"], str) or not isinstance(entry["train"], bool):
        raise DataError(f"{where}: content must be text and train true or false")
    ids = entry.get("token_ids")
    if ids is not None and not (isinstance(ids, list) and all(isinstance(i, int) for i in ids)):
        raise DataError(f"{where}: token_ids must be a list of whole numbers")
    try:
        stored = {"content": storable(entry["content"]), "token_ids": None if ids is None else tuple(ids)}
        return TraceMessage(**entry | stored)
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
