"""Episodes as whole conversations: rows of a table, and sessions that the Hugging Face hub shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agentloop.render.episodes import histories
from analysis.publish.scan import Scan
from occupancy.record.reading import read_cell
from occupancy.runs import Run

SCALARS = {
    "episode_id": "str",
    "task_id": "str",
    "task": "str",
    "kind": "str",
    "status": "str",
    "policy": "str",
    "teacher": "str",
    "switch_turn": "int",
    "K": "int",
    "length": "int",
    "R": "float",
    "accepted": "bool",
    "teacher_tokens": "int",
}
"""Columns of the table beside the messages, with their types; docs/publish.md says what each is."""
ROLES = ("system", "user", "assistant", "tool")
Record = dict[str, Any]


def conversations(run: Run, scan: Scan) -> Iterator[Record]:
    """A row an episode: SCALARS and `messages`, a list of {role, content, author, train}, cleaned."""
    traces = run.read("traces", columns=["episode_id", "messages"]).to_pylist()
    told = {
        trace["episode_id"]: read_cell(trace["messages"], "messages", trace["episode_id"]) for trace in traces
    }
    for episode, prompt, turns in histories(run):
        name = episode["episode_id"]
        messages = [_message(m["role"], m["content"], m["author"]) for m in prompt]
        for turn in turns:
            messages.append(_message("assistant", turn["text"], turn["author"]))
            messages.append(_message("user", turn["observation"], "environment"))
        # A trace is the conversation up to its last target.
        for message, traced in zip(messages, told.get(name, ()), strict=False):
            message |= {"role": traced["role"], "train": traced.get("train", False)}
        taught = [turn for turn in turns if turn["author"] == "teacher" and turn["episode_id"] == name]
        row = {column: episode.get(column) for column in SCALARS}
        row |= {
            "task": episode["cluster_id"],
            "accepted": name in told,
            "teacher_tokens": sum(turn["output_tokens"] for turn in taught),
            "messages": messages,
        }
        yield scan.clean(row, f"episode {name}")


def session(row: Record) -> str:
    """One conversation in the Session Trace Simple Format: a header line, then a line each message."""
    head = {"type": "session", "harness": "fewsteps", "id": row["episode_id"], "name": row["task_id"]}
    head |= {"kind": row["kind"], "R": row["R"], "status": row["status"]}
    models = {"student": row["policy"], "teacher": row["teacher"] or row["policy"]}
    lines: list[Record] = [head]
    for message in row["messages"]:
        said = {"role": message["role"], "content": message["content"]}
        if message["author"] in models:
            said["model"] = f"{message['author']}: {models[message['author']]}"
        lines.append({"type": "message", "message": said})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _message(role: str, content: str, author: str) -> Record:
    role = role if role in ROLES else "user"
    return {"role": role, "content": content, "author": author, "train": False}
