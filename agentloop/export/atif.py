"""Episodes as ATIF documents (Harbor's Agent Trajectory Interchange Format, version 1.7).

One document an episode: the prompt's messages, then a step for each turn with its observation. What a
continuation took over from its rollout is marked as copied context, so that its tokens are not added twice.
`extra` has the episode's key and cells, so that `fewsteps import` makes the same episode again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from occupancy.importers.results.atif import EPISODE_CELLS, TURN_CELLS
from occupancy.record.errors import DataError
from occupancy.record.reading import read_cell
from occupancy.runs import Run

VERSION = "ATIF-v1.7"
_KEY = (
    "task_id",
    "kind",
    "rollout",
    "proposal",
    "continuation",
    "replicate",
    "parent",
    "teacher_turns",
    "status",
    "error",
    "R",
)
Record = dict[str, Any]


def documents(run: Run) -> Iterator[Record]:
    """One document for each episode of the run, in the order of their ids."""
    accepted = set(run.read("traces", columns=["episode_id"])["episode_id"].to_pylist())
    for episode, prompt, played in histories(run):
        document = _document(episode, prompt, played, run)
        document["extra"]["accepted"] = episode["episode_id"] in accepted
        yield document


def histories(run: Run) -> Iterator[tuple[Record, list[Record], list[Record]]]:
    """(row of `episodes`, messages of its prompt, rows of all its turns) of each episode, by their ids.

    Turns that a continuation took over from its parent have the parent's `episode_id`.
    """
    episodes = {row["episode_id"]: row for row in run.read("episodes").to_pylist()}
    turns: dict[str, list[Record]] = defaultdict(list)
    for row in run.read("turns").to_pylist():
        turns[row["episode_id"]].append(row)
    for episode_id in sorted(episodes):
        yield episodes[episode_id], *_history(episodes[episode_id], episodes, turns)


def _document(episode: Record, prompt: list[Record], played: list[Record], run: Run) -> Record:
    own = {turn["t"] for turn in played if turn["episode_id"] == episode["episode_id"]}
    steps: list[Record] = [
        {
            "source": "system" if m["role"] == "system" else "user",
            "message": m["content"],
            "extra": {"role": m["role"], "author": m["author"]},
        }
        for m in prompt
    ]
    steps += [_step(turn, copied=turn["t"] not in own) for turn in played]
    for number, step in enumerate(steps, start=1):
        step["step_id"] = number
    mine = [turn for turn in played if turn["t"] in own]
    return {
        "schema_version": VERSION,
        "session_id": str(run.info.get("recipe_hash", "")),
        "trajectory_id": episode["episode_id"],
        "agent": {"name": "fewsteps", "version": episode["environment"], "model_name": episode["policy"]},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": sum(turn["prompt_tokens"] or 0 for turn in mine),
            "total_completion_tokens": sum(turn["output_tokens"] for turn in mine),
            "total_cached_tokens": sum(turn["cached_tokens"] or 0 for turn in mine),
            "total_steps": len(steps),
        },
        "extra": {name: episode[name] for name in (*_KEY, *EPISODE_CELLS)},
    }


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


def _step(turn: Record, *, copied: bool) -> Record:
    metrics = {
        "completion_tokens": turn["output_tokens"],
        "prompt_tokens": turn["prompt_tokens"],
        "cached_tokens": turn["cached_tokens"],
    }
    step: Record = {
        "source": "agent",
        "message": turn["text"],
        "observation": {"results": [{"content": turn["observation"]}]},
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "extra": {
            "author": turn["author"],
            "t": turn["t"],
            "finish_reason": turn["finish_reason"],
            "context_id": turn["context_id"],
            "reasoning_tokens": turn["reasoning_tokens"],
            **{name: turn[name] for name in TURN_CELLS},
        },
    }
    return step | {"is_copied_context": True} if copied else step
