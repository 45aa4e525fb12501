"""Agent Trajectory Interchange Format, versions 1.0 to 1.8: a JSON file an episode.

An agent step is a turn; its observation, and user and system steps after it, are the reply. Steps copied
from an earlier context (`is_copied_context`) and steps without a model call (`llm_call_count` 0) are
context, not turns. Reasoning that is not in the message was in no context and is left out. Embedded
subagents are episodes of their own.
"""

# ruff: noqa: PLR0917 - private functions that share a record
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import (
    ImportedEpisode,
    ImportedTurn,
    ImportSettings,
    Place,
    author_of,
    read_json,
    reward_of,
    task_of,
    text_of,
    with_calls,
)

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """The episode of a file, then those of its embedded subagents."""
    place = Place(file, "whole file")
    return _trajectory(read_json(place), settings, place, None)


def _trajectory(
    root: Any, settings: ImportSettings, place: Place, parent: str | None
) -> list[ImportedEpisode]:
    if not isinstance(root, Mapping) or not isinstance(root.get("steps"), list):
        raise place.refuse("no list of steps: expected an ATIF trajectory")
    if parent is None and root.get("schema_version") not in VERSIONS:
        raise place.refuse(f"schema_version {root.get('schema_version')!r}: expected {VERSIONS[0]} to 1.8")
    agent = root.get("agent")
    model = str((agent.get("model_name") if isinstance(agent, Mapping) else "") or "")
    prompt: list[tuple[str, str]] = []
    turns: list[ImportedTurn] = []
    for number, step in enumerate(root["steps"], start=1):
        here = place.within(f"step {number}")
        if not isinstance(step, Mapping) or step.get("source") not in ("system", "user", "agent"):
            source = step.get("source") if isinstance(step, Mapping) else step
            raise here.refuse(f"source {source!r}: expected system, user or agent")
        text = with_calls(text_of(step.get("message"), here), _calls(step.get("tool_calls"), here))
        reply = _observation(step.get("observation"), here)
        is_turn = step["source"] == "agent" and not step.get("is_copied_context")
        if is_turn and step.get("llm_call_count") != 0:
            turns.append(_turn(step, text, reply, model, settings, here))
        elif turns:
            said = "\n".join(filter(None, (turns[-1].observation, text, reply)))
            turns[-1] = replace(turns[-1], observation=said)
        else:
            role = "assistant" if step["source"] == "agent" else str(step["source"])
            prompt += [(r, t) for r, t in ((role, text), ("user", reply)) if t]
    if not turns:
        raise place.refuse("no agent step: an episode has a turn at least")
    facts = {**root, **(root.get("extra") or {}), "session_id": root.get("session_id")}
    task = parent or task_of(facts, settings, place)
    episodes = [
        ImportedEpisode(task, tuple(prompt), tuple(turns), str(place), reward_of(facts, settings, place))
    ]
    for number, child in enumerate(root.get("subagent_trajectories") or (), start=1):
        name = f"{task}/{child.get('trajectory_id', number) if isinstance(child, Mapping) else number}"
        unrewarded = replace(settings, reward="")
        episodes += _trajectory(child, unrewarded, place.within(f"subagent {number}"), name)
    return episodes


def _turn(
    step: Mapping[str, Any], text: str, reply: str, model: str, settings: ImportSettings, place: Place
) -> ImportedTurn:
    name = str(step.get("model_name") or model)
    metrics = step.get("metrics") or {}
    named = (step.get("extra") or {}).get("author")
    return ImportedTurn(
        author_of(named, name, settings, place),
        text,
        reply,
        _count(metrics.get("completion_tokens"), place),
        _count(metrics.get("prompt_tokens"), place),
        _count(metrics.get("cached_tokens"), place),
        name,
    )


def _count(value: Any, place: Place) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise place.refuse(f"token count {value!r}: expected a whole number")
    return value


def _calls(calls: Any, place: Place) -> list[tuple[Any, Any]]:
    found = []
    for call in calls or ():
        if not isinstance(call, Mapping) or not isinstance(call.get("function_name"), str):
            raise place.refuse(f"tool call {call!r}: expected an object with function_name")
        found.append((call["function_name"], call.get("arguments")))
    return found


def _observation(observation: Any, place: Place) -> str:
    results = observation.get("results") if isinstance(observation, Mapping) else None
    return "\n".join(filter(None, (text_of(result.get("content"), place) for result in results or ())))
