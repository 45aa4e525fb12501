"""Episodes of a run as messages with authors, whole from the first turn; without a tokenizer."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from occupancy.runs import Run

_COLUMNS = ["episode_id", "kind", "parent", "status", "R", "error", "prompt", "length"]


def episodes_of(
    run: Run,
    *,
    kind: str | None = None,
    status: str | None = None,
    episode_id: str | None = None,
    limit: int = 0,
) -> list[dict[str, Any]]:
    """The first episodes that fit, in key order; without any condition those with an accepted trace.

    Args:
        run: The run.
        kind: Kind of the episodes.
        status: How they ended.
        episode_id: One of them.
        limit: Most of them; 0 = all.

    Returns:
        Dicts {episode_id, kind, status, R, error, messages}; a message is {t, author, text, target}, and t is
        None before turn 1 and in observations.
    """
    episodes = {row["episode_id"]: row for row in run.read("episodes", columns=_COLUMNS).to_pylist()}
    accepted = run.read("traces", columns=["episode_id", "messages"]).to_pylist()
    traces = {row["episode_id"]: row["messages"] for row in accepted}
    if kind or status or episode_id:
        conditions = {"kind": kind, "status": status, "episode_id": episode_id}
        wanted = {name: value for name, value in conditions.items() if value}
        chosen = [e for e, row in episodes.items() if all(row[name] == v for name, v in wanted.items())]
    else:
        chosen = [e for e in episodes if e in traces]
    turns = defaultdict[str, list[dict[str, Any]]](list)
    for turn in run.read("turns", columns=["episode_id", "t", "author", "text", "observation"]).to_pylist():
        turns[turn["episode_id"]].append(turn)
    return [_episode(e, episodes, turns, traces) for e in chosen[: limit or None]]


def _episode(
    name: str, episodes: dict[str, Any], turns: dict[str, list[dict[str, Any]]], traces: dict[str, str]
) -> dict[str, Any]:
    row, messages = episodes[name], _prompt(name, episodes)
    said = [m for m in json.loads(traces.get(name, "[]")) if m["author"] == "teacher"]
    own = {id(turn) for turn in turns.get(name, ())}
    taught = 0
    for turn in _whole(name, episodes, turns):
        target = False
        if turn["author"] == "teacher" and id(turn) in own:
            target = taught < len(said) and bool(said[taught]["train"])
            taught += 1
        messages.append({"t": turn["t"], "author": turn["author"], "text": turn["text"], "target": target})
        if turn["observation"]:
            seen = {"t": None, "author": "environment", "text": turn["observation"], "target": False}
            messages.append(seen)
    told = {column: row[column] for column in ("episode_id", "kind", "status", "R", "error")}
    return told | {"messages": messages}


def _whole(
    name: str, episodes: dict[str, Any], turns: dict[str, list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """All turns of an episode: those before its own are its parent's."""
    own = sorted(turns.get(name, ()), key=lambda turn: int(turn["t"]))
    parent = episodes[name]["parent"]
    if parent not in episodes:
        return own
    begins = own[0]["t"] if own else episodes[name]["length"] + 1
    return [turn for turn in _whole(parent, episodes, turns) if turn["t"] < begins] + own


def _prompt(name: str, episodes: dict[str, Any]) -> list[dict[str, Any]]:
    while not episodes[name]["prompt"] and episodes[name]["parent"] in episodes:
        name = episodes[name]["parent"]
    return [
        {"t": None, "author": message["author"], "text": message["content"], "target": False}
        for message in json.loads(episodes[name]["prompt"] or "[]")
    ]
