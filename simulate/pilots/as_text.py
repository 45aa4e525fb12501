"""A pilot played in a world as an environment of text would have recorded it: no context recurs.

A prompt that holds the whole history is read once, and there is no state to name.
"""

from __future__ import annotations

from occupancy.record.rows import Rows


def as_text(rows: Rows) -> Rows:
    """The same episodes and turns, where a context is its whole history and states have no ids."""
    parent = {row["episode_id"]: row["parent"] for row in rows["episodes"]}
    first: dict[str, int] = {}
    for turn in rows["turns"]:
        first[turn["episode_id"]] = min(turn["t"], first.get(turn["episode_id"], turn["t"]))

    def history(episode: str, t: int) -> str:
        # The first turn of a continuation or hand-back reads what was read at that turn before it.
        while t <= first.get(episode, 0) and parent[episode]:
            episode = parent[episode]
        return f"{episode}/{t}"

    turns = [
        turn | {"context_id": history(turn["episode_id"], turn["t"]), "state_id": None}
        for turn in rows["turns"]
    ]
    return rows | {"turns": turns}
