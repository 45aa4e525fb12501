"""Episodes as ATIF documents (Harbor's Agent Trajectory Interchange Format, version 1.7).

One document an episode: the prompt's messages, then a step for each turn with its observation. What a
continuation took over from its rollout is marked as copied context, so that its tokens are not added twice.
`extra` has the episode's key and cells, so that `fewsteps import` makes the same episode again.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentloop.render.episodes import Record, histories
from occupancy.importers.results.atif import EPISODE_CELLS, TURN_CELLS
from occupancy.record.rows import KEY
from occupancy.runs import Run

VERSION = "ATIF-v1.7"
_CELLS = (*KEY, "kind", "parent", "teacher_turns", "status", "error", "R", *EPISODE_CELLS)


def documents(run: Run) -> Iterator[Record]:
    """One document for each episode of the run, in the order of their ids."""
    accepted = set(run.column("traces", "episode_id"))
    for episode, prompt, played in histories(run):
        document = _document(episode, prompt, played, run)
        document["extra"]["accepted"] = episode["episode_id"] in accepted
        yield document


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
        "extra": {name: episode[name] for name in _CELLS},
    }


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
