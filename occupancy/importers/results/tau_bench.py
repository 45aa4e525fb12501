"""tau-bench results: a list of {"task_id", "reward", "traj", "trial"}; tau2: {"simulations": [..], ..}.

What a simulated user does with tools of its own is not seen by the agent, and is left out. The agent's fixed
greeting before the first user message is part of the prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of
from occupancy.importers.files import Place, field_of, json_objects, mapping, without
from occupancy.importers.messages import content_text
from occupancy.importers.records import episode_of

ENDS = {
    "user_stop": "finished",
    "agent_stop": "finished",
    "max_steps": "horizon",
    "too_many_errors": "student_failed",
    "agent_error": "student_failed",
    "user_error": "environment_error",
}
_USED = ("traj", "info", "trial", "reward", "task_id")
_NOT_SAID = ("turn_idx", "timestamp", "cost", "raw_data", "requestor", "error", "generation_time_seconds")
"""Fields of a message that are no part of what was said."""


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; a trial is a rollout of its task."""
    for record, place in json_objects(file, settings.progress):
        if isinstance(record.get("simulations"), list):
            model = str(field_of(record, "info.agent_info.llm") or "")
            for number, simulation in enumerate(record["simulations"], start=1):
                yield _simulation(simulation, model, settings, place.within(f"simulation {number}"))
        else:
            messages = record.get("traj")
            yield episode_of(record, messages, settings, place, used=_USED, rollout=_trial(record))


def _trial(run: Mapping[str, Any]) -> int | None:
    return run["trial"] if isinstance(run.get("trial"), int) else None


def _simulation(run: Any, model: str, settings: ImportSettings, place: Place) -> ImportedEpisode:
    if not isinstance(run, Mapping) or not isinstance(run.get("messages"), list):
        raise place.refuse("no list under 'messages': expected a simulation")
    end = str(run.get("termination_reason") or "user_stop").rpartition(".")[2].lower()
    if end not in ENDS:
        raise place.refuse(f"termination_reason {end!r}: expected one of {', '.join(ENDS)}")
    messages = []
    for message in run["messages"]:
        said = mapping(message)
        if said.get("requestor") == "user" or (said.get("role") == "user" and said.get("tool_calls")):
            settings.left_out["tool use of the simulated user"] += 1
        else:
            messages.append(without(said, *_NOT_SAID) if said else message)
    greeting = ""
    first = mapping(messages[0] if messages else None)
    if first.get("role") == "assistant" and not first.get("usage"):
        greeting = content_text(messages.pop(0).get("content"), settings, place)
    facts = {"reward": field_of(run, "reward_info.reward"), **run}
    episode = episode_of(
        {"model": model},
        messages,
        settings,
        place,
        task_id=str(run.get("task_id")),
        R=reward_of(facts, settings, place),
        status=ENDS[end],
        rollout=_trial(run),
    )
    if not greeting:
        return episode
    return replace(episode, prompt=(("assistant", greeting), *episode.prompt))
