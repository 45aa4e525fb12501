"""From the raw text of a turn to the one command that the game reads."""

from __future__ import annotations

import re

MARKED = re.compile(r"\s*(?:action(?:\s+\d+)?\s*:|>)(.*)", re.IGNORECASE)


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
