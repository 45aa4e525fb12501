"""What is said to a policy before turn 1, and the one command in the raw text of its turn."""

from __future__ import annotations

import re

MARKED = re.compile(r"\s*(?:action(?:\s+\d+)?\s*:|>)(.*)", re.IGNORECASE)
PLACING = {"2.1.1": "put X in/on Y", "2.1.2": "move X to Y"}
SYSTEM = """You act in a text world of one house. Each of your turns is one command, alone on its line.
Commands: look, inventory, go to Y, open Y, close Y, take X from Y, {put}, examine X, use X, \
heat X with Y, cool X with Y, clean X with Y, slice X with Y.
X and Y are names with their numbers, as you have read them: apple 1, fridge 1.
"Nothing happens." means that the command could not be carried out. The world ends when the task is done."""


def parse_command(text: str) -> tuple[str, str]:
    """The command in a turn, and a parse status.

    The last line `Action: cmd` or `> cmd` (ReAct style) is the command, else the last line that is not blank.

    status  ok | empty (no command at all) | multiline (several lines and no marker: the last one was taken)
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [found[1].strip() for line in lines if (found := MARKED.fullmatch(line))]
    command = (marked or lines or [""])[-1]
    if not command:
        return "", "empty"
    return command, "ok" if marked or len(lines) == 1 else "multiline"
