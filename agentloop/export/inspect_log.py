"""Episodes as one log of inspect_ai, for its viewer and its analyses: a sample an episode.

The task is the sample's id, and episodes of a task are its epochs. The model of a turn is its author, so that
`fewsteps import --author-of student=student --author-of teacher=teacher` reads the turns back; the episode's
key and who played are in the sample's metadata.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from agentloop.render.episodes import Record, histories
from agentloop.run.episode import NO_DATA
from occupancy.importers.results.inspect_log import LIMITS
from occupancy.runs import Run

_LIMIT = {status: kind for kind, status in LIMITS.items()}
_ERRORS = set(NO_DATA) - {*_LIMIT, "capped", "switched"}
"""Ends that say nothing about the policy. A teacher that stopped after K turns, or took over, is none."""
_METADATA = ("episode_id", "kind", "parent", "switch_turn", "K", "teacher_turns", "policy", "prefix_policy")


def log_of(run: Run) -> Record:
    """The log of a run's episodes, in the order of their ids; one without a turn is a sample without one."""
    epochs: Counter[str] = Counter()
    samples = []
    for episode, prompt, played in histories(run):
        epochs[episode["task_id"]] += 1
        samples.append(_sample(episode, prompt, played) | {"epoch": epochs[episode["task_id"]]})
    environment = str(run.info.get("environment", ""))
    head = {
        "created": datetime.fromtimestamp((run.folder / "run.json").stat().st_mtime, UTC).isoformat(),
        "task": environment or "fewsteps",
        "model": str(run.info.get("student") or run.info.get("teacher") or "fewsteps"),
        "dataset": {"name": environment, "samples": len(samples)},
        "config": {"epochs": max(epochs.values(), default=1)},
        "metadata": {"recipe_hash": run.recipe.hash},
    }
    return {"version": 2, "status": "success", "eval": head, "samples": samples}


def _sample(episode: Record, prompt: list[Record], played: list[Record]) -> Record:
    messages: list[dict[str, Any]] = [{"role": m["role"], "content": m["content"]} for m in prompt]
    for turn in played:
        said = {"role": "assistant", "content": turn["text"], "model": turn["author"], "source": "generate"}
        messages += [said, {"role": "user", "content": turn["observation"]}]
    sample: Record = {
        "id": episode["task_id"],
        "input": next((m["content"] for m in reversed(prompt)), ""),
        "target": "",
        "messages": messages,
        "scores": None if episode["R"] is None else {"R": {"value": episode["R"]}},
        "metadata": {name: episode[name] for name in _METADATA},
    }
    status = episode["status"]
    if status in _LIMIT:
        sample["limit"] = {"type": _LIMIT[status], "limit": episode["length"]}
    if status in _ERRORS:
        sample["error"] = {"message": episode["error"] or status, "traceback": "", "traceback_ansi": ""}
    return sample
