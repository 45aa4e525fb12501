"""Episodes of a run as messages with authors, whole from the first turn; without a tokenizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from occupancy.record.errors import DataError
from occupancy.record.reading import read_cell
from occupancy.runs import Run

Record = dict[str, Any]


def histories(
    run: Run, names: Iterable[str] | None = None
) -> Iterator[tuple[Record, list[Record], list[Record]]]:
    """(row of `episodes`, messages of its prompt, rows of all its turns) of the episodes with these ids.

    Turns that a continuation took over from its parent have the parent's `episode_id`. By default all
    episodes, by their ids.
    """
    episodes = {row["episode_id"]: row for row in run.read("episodes").to_pylist()}
    turns: dict[str, list[Record]] = defaultdict(list)
    for row in run.read("turns").to_pylist():
        turns[row["episode_id"]].append(row)
    for name in sorted(episodes) if names is None else names:
        yield episodes[name], *_history(episodes[name], episodes, turns)


def episodes_of(
    run: Run,
    *,
    kind: str | None = None,
    status: str | None = None,
    episode_id: str | None = None,
    limit: int = 0,
) -> list[Record]:
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
    accepted = run.read("traces", columns=["episode_id", "messages"]).to_pylist()
    traces = {row["episode_id"]: row["messages"] for row in accepted}
    asked = {"kind": kind, "status": status, "episode_id": episode_id}
    wanted = {name: value for name, value in asked.items() if value}
    rows = run.read("episodes", columns=["episode_id", "kind", "status"]).to_pylist()
    fit = [row["episode_id"] for row in rows if all(row[name] == value for name, value in wanted.items())]
    chosen = fit if wanted else [name for name in fit if name in traces]
    return [_told(*found, traces) for found in histories(run, chosen[: limit or None])]


def _told(episode: Record, prompt: list[Record], played: list[Record], traces: Mapping[str, str]) -> Record:
    name = episode["episode_id"]
    traced = read_cell(traces.get(name, "[]"), "messages", name)
    trained = iter([m.get("train", False) for m in traced if m["author"] == "teacher"])
    messages = [_message(m["author"], m["content"]) for m in prompt]
    for turn in played:
        taught = turn["author"] == "teacher" and turn["episode_id"] == name
        target = taught and next(trained, False)
        messages.append(_message(turn["author"], turn["text"], t=turn["t"], target=target))
        if turn["observation"]:
            messages.append(_message("environment", turn["observation"]))
    columns = ("episode_id", "kind", "status", "R", "error")
    return {column: episode[column] for column in columns} | {"messages": messages}


def _message(author: str, text: str, *, t: int | None = None, target: bool = False) -> Record:
    return {"t": t, "author": author, "text": text, "target": target}


def _history(
    episode: Record, episodes: Mapping[str, Record], turns: Mapping[str, list[Record]]
) -> tuple[list[Record], list[Record]]:
    """The prompt and all turns of an episode, those of its parents included."""
    own = sorted(turns[episode["episode_id"]], key=lambda turn: int(turn["t"]))
    if not episode["parent"]:
        prompt: list[Record] = read_cell(episode["prompt"], "messages", episode["episode_id"])
        return prompt, own
    parent = episodes.get(episode["parent"])
    if parent is None:
        raise DataError(f"episode {episode['episode_id']}: its parent {episode['parent']} is not in the run")
    prompt, before = _history(parent, episodes, turns)
    first = own[0]["t"] if own else episode["length"] + 1
    return prompt, [turn for turn in before if turn["t"] < first] + own
