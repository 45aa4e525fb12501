"""A pilot played in a world as an environment of text would have recorded it: no context comes twice.

A prompt that holds the whole history is read once, and there is no state to name. What is left to tell
contexts apart is what observations say, so much or so little.
"""

from __future__ import annotations

import zlib
from typing import Any

from occupancy.record.errors import InputError
from occupancy.record.rows import Rows

CONTEXTS = {
    "ids": "contexts and states have ids that come again",
    "words": "whole histories; each observation names its context in words",
    "shared": "whole histories; four contexts, drawn at random, share their words",
    "nothing": "whole histories; all observations read the same",
}
SHARED = 4


def as_text(rows: Rows, *, contexts: str) -> Rows:
    """The same episodes and turns with other ids and observations; `contexts` is a key of CONTEXTS."""
    if contexts not in CONTEXTS:
        raise InputError(f"contexts {contexts!r}: expected one of {', '.join(CONTEXTS)}")
    if contexts == "ids":
        return rows
    parent = {row["episode_id"]: row["parent"] for row in rows["episodes"]}
    met = len({turn["context_id"] for turn in rows["turns"]})
    first: dict[str, int] = {}
    for turn in rows["turns"]:
        first[turn["episode_id"]] = min(turn["t"], first.get(turn["episode_id"], turn["t"]))

    def history(episode: str, t: int) -> str:
        # The first turn of a continuation or hand-back reads what was read at that turn before it.
        while t <= first.get(episode, 0) and parent[episode]:
            episode = parent[episode]
        return f"{episode}/{t}"

    def said(observation: str) -> str:
        kind, _, number = observation.partition(" ")
        if kind != "context":
            return observation
        if contexts == "nothing":
            return "Something is here."
        mixed = zlib.crc32(number.encode()) % max(met // SHARED, 1) if contexts == "shared" else int(number)
        return f"You see {_words(mixed)}."

    turns: list[dict[str, Any]] = [
        turn
        | {
            "context_id": history(turn["episode_id"], turn["t"]),
            "state_id": None,
            "observation": said(turn["observation"]),
        }
        for turn in rows["turns"]
    ]
    return rows | {"turns": turns}


def _words(number: int) -> str:
    """A number as a word of letters: digits are masked where contexts are told apart."""
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))
