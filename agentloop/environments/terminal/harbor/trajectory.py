"""The trajectory of an episode in Harbor, as an ATIF document that says who wrote each turn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentloop.types import Answer, Ask, Author, Message, Policy, PolicyFailed, Usage
from occupancy.importers.results.atif import VERSIONS
from occupancy.record.drafts import write_whole
from occupancy.record.errors import InputError

VERSION = "ATIF-v1.7"
NAME = "fewsteps"
RECORDED = "recorded"
"""Counter of usage that was read from a trajectory without one."""


class Trajectory:
    """Writes trajectory.json and the token counts while an episode is played.

    `counts` is Harbor's AgentContext, which it reads whenever a time limit strikes.
    """

    def __init__(self, file: Path, instruction: str, counts: Any) -> None:
        self._file, self._instruction, self._counts = file, instruction, counts
        self._usage: list[tuple[str, Usage]] = []

    def noting(self, policy: Policy, author: Author, name: str) -> Policy:
        """The same policy; each of its turns is written as soon as it is known."""

        async def play(ask: Ask) -> Answer:
            self.write(ask.context)
            answer = await policy(ask)
            self._usage.append((name, answer.usage))
            used = [usage for _, usage in self._usage]
            self._counts.n_output_tokens = sum(usage.output for usage in used)
            self._counts.n_input_tokens = sum(usage.prompt or 0 for usage in used)
            self._counts.n_cache_tokens = sum(usage.cached or 0 for usage in used)
            self.write((*ask.context, Message("assistant", answer.text, author)))
            return answer

        return play

    def write(self, messages: Sequence[Message]) -> None:
        """Write a context as it is now, in place of what was there."""
        steps: list[dict[str, Any]] = []
        usage = iter(self._usage)
        for message in messages:
            if message.role == "assistant":
                steps.append(_step(message, *next(usage)))
            elif steps and steps[-1]["source"] == "agent":
                steps[-1]["observation"] = {"results": [{"content": message.content}]}
            else:
                source = "system" if message.role == "system" else "user"
                steps.append({"source": source, "message": message.content})
        document = {
            "schema_version": VERSION,
            "session_id": self._file.parent.parent.name,
            "agent": {"name": NAME, "version": "terminus-2", "extra": {"instruction": self._instruction}},
            "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps(document))


def _step(message: Message, name: str, usage: Usage) -> dict[str, Any]:
    metrics = {
        "completion_tokens": usage.output,
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "extra": {"reasoning_tokens": usage.reasoning, "counter": usage.counter},
    }
    return {
        "source": "agent",
        "model_name": name,
        "message": message.content,
        "metrics": {key: value for key, value in metrics.items() if value is not None},
        "extra": {"author": str(message.author)},
    }


def find_recorded(folder: Path, instruction: str) -> list[dict[str, Any]]:
    """The agent's steps of the one trajectory below a folder that was recorded for an instruction.

    Raises:
        InputError: there is none, or more than one, or one whose turns are not all the student's.
    """
    found = []
    for file in sorted(folder.rglob("trajectory.json")):
        try:
            document = json.loads(file.read_text("utf-8"))
            agent = document["agent"]
            ours = document["schema_version"] in VERSIONS and agent["name"] == NAME
            if ours and agent["extra"]["instruction"] == instruction:
                steps = [step for step in document["steps"] if step["source"] == "agent"]
                found.append([(step, step["extra"]["author"]) for step in steps])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue  # another agent's
    if len(found) != 1:
        raise InputError(f"{folder}: {len(found)} trajectories of this task by this agent; expected one")
    if not found[0] or any(author != Author.STUDENT for _, author in found[0]):
        raise InputError(f"{folder}: expected a trajectory that the student played alone")
    return [step for step, _ in found[0]]


def recorded_policy(steps: Sequence[dict[str, Any]]) -> Policy:
    """A policy that plays recorded turns again; PolicyFailed where the terminal shows something else."""

    async def play(ask: Ask) -> Answer:
        if ask.t > len(steps):
            raise PolicyFailed(f"turn {ask.t} was not recorded: the trajectory has {len(steps)}")
        if ask.t > 1:
            normalise = getattr(ask.env, "normalise", str)
            shown = steps[ask.t - 2].get("observation", {}).get("results", [{}])[0].get("content", "")
            if normalise(shown) != normalise(ask.context[-1].content):
                raise PolicyFailed(f"turn {ask.t - 1}, played again, shows something else than was recorded")
        step = steps[ask.t - 1]
        return Answer(step["message"], _usage(step.get("metrics", {})))

    return play


def _usage(metrics: dict[str, Any]) -> Usage:
    extra = metrics.get("extra", {})
    return Usage(
        metrics.get("completion_tokens", 0),
        extra.get("counter", RECORDED),
        extra.get("reasoning_tokens", 0),
        metrics.get("prompt_tokens"),
        metrics.get("cached_tokens"),
    )
