"""The words before turn 1."""

from __future__ import annotations

from collections.abc import Sequence

from agentloop.types import Message, Reply

COMMANDS = {
    "2.1.1": "put X in/on Y",
    "2.1.2": "move X to Y",
}

SYSTEM = """You act in a text world of one house. Each of your turns is one command, alone on its line.
Commands: look, inventory, go to Y, open Y, close Y, take X from Y, {put}, examine X, use X, \
heat X with Y, cool X with Y, clean X with Y, slice X with Y.
X and Y are names with their numbers, as you have read them: apple 1, fridge 1.
"Nothing happens." means that the command could not be carried out. The world ends when the task is done."""


def prompt(first: Reply, *, grammar: str) -> Sequence[Message]:
    """The context before turn 1: the rules, then the room and the task."""
    return (
        Message("system", SYSTEM.format(put=COMMANDS[grammar]), author="task"),
        Message("user", first.observation, author="environment"),
    )
