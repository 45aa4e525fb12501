"""The two grammars that ALFWorld's games have had, as a setting, and the command in a turn's text.

`2.1.1`  `put X in/on Y`, "You arrive at loc 24."          the text of the published game files
`2.1.2`  `move X to Y`, "You arrive at desk 2.", `help`    the text of alfworld >= 0.4.0

Both play the same worlds. Scores differ, so the grammar is part of every trajectory's environment version.
The default is 2.1.1, with which prompts and scores up to alfworld 0.3 were made.
"""

from __future__ import annotations

import importlib.util
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

from occupancy.record.errors import MissingExtra, installed_version
from occupancy.record.finish import after_reasoning
from occupancy.record.reading import reading

Grammar = Literal["2.1.1", "2.1.2"]

PUT = re.compile(r"^put (.+) in/on (.+)$")
MOVE = re.compile(r"^move (.+) to (.+)$")

MARKED = re.compile(r"\s*(?:action(?:\s+\d+)?\s*:|>)(.*)", re.IGNORECASE)
PLACING = {"2.1.1": "put X in/on Y", "2.1.2": "move X to Y"}
SYSTEM = """You act in a text world of one house. Each of your turns is one command, alone on its line.
Commands: look, inventory, go to Y, open Y, close Y, take X from Y, {put}, examine X, use X, \
heat X with Y, cool X with Y, clean X with Y, slice X with Y.
X and Y are names with their numbers, as you have read them: apple 1, fridge 1.
"Nothing happens." means that the command could not be carried out. The world ends when the task is done."""


def version(grammar: str) -> str:
    """The environment version that every trajectory records."""
    versions = {name: installed_version(name) for name in ("alfworld", "textworld")}
    if missing := next((name for name, version in versions.items() if not version), ""):
        raise MissingExtra(missing, "alfworld")
    return ", ".join([*map(" ".join, versions.items()), f"grammar {grammar}"])


def package_logic(goal: str) -> tuple[str, str]:
    """Domain and grammar of 2.1.2, from the installed package; its template adds the final period itself."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("alfworld", "alfworld")
    return logic(Path(spec.submodule_search_locations[0]) / "data" / "alfred", goal.removesuffix("."))


def logic(place: Path, goal: str) -> tuple[str, str]:
    """Domain and grammar in `place`.pddl and `place`.twl2, with `goal` in them."""
    domain, grammar = _read(f"{place}.pddl"), _read(f"{place}.twl2")
    return domain, grammar.replace("UNKNOWN GOAL", goal)


def put_to_move(command: str) -> str:
    """A 2.1.1 command as 2.1.2 says it."""
    return PUT.sub(r"move \1 to \2", command)


def move_to_put(command: str) -> str:
    """A 2.1.2 command as 2.1.1 says it."""
    return MOVE.sub(r"put \1 in/on \2", command)


def parse_command(text: str) -> tuple[str, str]:
    """The command in a turn, and a parse status.

    After reasoning, the last line `Action: cmd` or `> cmd` (ReAct style) is the command, else the last line
    that is not blank.

    status  ok | empty (no command at all) | multiline (several lines and no marker: the last one was taken)
    """
    lines = [line.strip() for line in after_reasoning(text).splitlines() if line.strip()]
    marked = [found[1].strip() for line in lines if (found := MARKED.fullmatch(line))]
    command = (marked or lines or [""])[-1]
    if not command:
        return "", "empty"
    return command, "ok" if marked or len(lines) == 1 else "multiline"


@lru_cache(maxsize=8)
def _read(path: str) -> str:
    with reading(path, then="it holds the logic of the games"):
        return Path(path).read_text(encoding="utf-8")
