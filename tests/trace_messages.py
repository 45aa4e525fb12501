"""Messages of a trace by author, and the text of a row's targets."""

from __future__ import annotations

from families import codec

from agentloop.render import TraceMessage, TrainingRow
from agentloop.render.codec import decode


def task(content: str = "Find it.") -> TraceMessage:
    return TraceMessage("user", content, "task", False)


def saw(content: str, role: str = "user") -> TraceMessage:
    return TraceMessage(role, content, "environment", False)


def student(content: str) -> TraceMessage:
    return TraceMessage("assistant", content, "student", False)


def teacher(content: str, **more: object) -> TraceMessage:
    return TraceMessage("assistant", content, "teacher", True, **more)  # type: ignore[arg-type]


def target_text(family: str, row: TrainingRow) -> str:
    return decode(codec(family), [int(i) for i in row.ids[row.targets]])
