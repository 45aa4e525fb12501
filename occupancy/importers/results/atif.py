"""Agent Trajectory Interchange Format, versions 1.0 to 1.8: one trajectory or a list of them in a JSON file.

An agent step is a turn; its observation, and user and system steps after it, are the reply. Steps copied from
an earlier context (`is_copied_context`) and steps without a model call (`llm_call_count` 0) are context, not
turns. Embedded subagents are episodes of their own. A Harbor trial's result.json beside the file, or one
folder up, gives task, rewards and error. What `fewsteps export --format atif` wrote becomes the episode that
it was: the copied steps of a continuation are its parent's turns.
"""

# ruff: noqa: PLR0917 - private functions that share a record
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import (
    NO_REWARD,
    ImportedEpisode,
    ImportedTurn,
    ImportSettings,
    Origin,
    author_of,
    reward,
    reward_of,
    task_of,
)
from occupancy.importers.files import Place, field_of, json_records, lines, listed, mapping
from occupancy.importers.messages import calls_of, content_text, replied, usage_of, with_tools
from occupancy.importers.results.harbor import NO_VERDICT, TrialResult, result_beside
from occupancy.record.calls import turn_text, with_thought
from occupancy.record.rows import KEY, KINDS, Key

VERSIONS = tuple(f"ATIF-v1.{minor}" for minor in range(9))
_NUMBERS = KEY[1:]
EPISODE_CELLS = (
    *("cluster_id", "task_kind", "prefix_policy", "policy", "teacher"),
    *("switch_turn", "K", "environment", "seed"),
)
"""Cells of `episodes` that an exported document names under `extra`, beside the key."""
TURN_CELLS = ("counter", "parse_status", "state_id", "student_tokens", "logprob")
"""Cells of `turns` that an exported step names under `extra`."""


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """The episodes of a file, each followed by those of its embedded subagents."""
    trial = result_beside(file)
    for root, place in json_records(file, settings.progress):
        if isinstance(root, Mapping) and "trial_name" in root and "steps" not in root:
            raise place.refuse("a Harbor result: give the trial's trajectory.json, and this is read too")
        yield from _trajectory(root, settings, place, None, trial)


def _trajectory(
    root: Any, settings: ImportSettings, place: Place, parent: str | None, trial: TrialResult | None
) -> Iterator[ImportedEpisode]:
    if not isinstance(root, Mapping) or not isinstance(root.get("steps"), list):
        raise place.refuse("no list of steps: expected an ATIF trajectory")
    if parent is None and root.get("schema_version") not in VERSIONS:
        raise place.refuse(f"schema_version {root.get('schema_version')!r}: expected {VERSIONS[0]} to 1.8")
    agent = mapping(root.get("agent"))
    extra = mapping(root.get("extra"))
    origin = _origin(extra, root["steps"])
    prompt: list[tuple[str, str]] = []
    turns: list[ImportedTurn] = []
    for number, step in enumerate(root["steps"], start=1):
        here = place.within(f"step {number}")
        if not isinstance(step, Mapping) or step.get("source") not in ("system", "user", "agent"):
            source = step.get("source") if isinstance(step, Mapping) else step
            raise here.refuse(f"source {source!r}: expected system, user or agent")
        said, calls = (
            content_text(step.get("message"), settings, here),
            calls_of(step.get("tool_calls"), here),
        )
        text = turn_text(said, calls)
        reply = _observation(step.get("observation"), settings, here)
        is_turn = step["source"] == "agent" and (origin is not None or not step.get("is_copied_context"))
        if is_turn and step.get("llm_call_count") != 0:
            turns.append(_turn(step, text, reply, str(agent.get("model_name") or ""), settings, here))
        elif turns:
            turns[-1] = replied(replied(turns[-1], text), reply, turns[-1].role)
        else:
            by = "assistant" if step["source"] == "agent" else step["source"]
            role = str(field_of(step, "extra.role") or by)
            prompt += [(role, text)] if text or origin is not None else []
            prompt += [("user", reply)] if reply else []
    if not turns and origin is None:
        raise place.refuse("no agent step: an episode has a turn at least")
    named = {"task_id": trial.task_id} if trial else {}
    facts = {**root, **named, **extra, "session_id": root.get("session_id")}
    if trial:
        _account(turns, trial, settings)
    task = parent or task_of(facts, settings, place)
    yield ImportedEpisode(
        task,
        with_tools(tuple(prompt), agent.get("tool_definitions"), place),
        tuple(turns),
        str(place),
        _reward(facts, trial, settings, place),
        *_end(extra if origin else {}, trial, settings),
        origin=origin,
    )
    for number, child in enumerate(root.get("subagent_trajectories") or (), start=1):
        name = f"{task}/{child.get('trajectory_id', number) if isinstance(child, Mapping) else number}"
        unrewarded = replace(settings, reward=NO_REWARD)
        yield from _trajectory(child, unrewarded, place.within(f"subagent {number}"), name, None)


def _end(extra: Mapping[str, Any], trial: TrialResult | None, settings: ImportSettings) -> tuple[str, str]:
    """Status and error: of the exported episode, else of the trial; `--reward none` misses no reward."""
    if trial is None or extra:
        return str(extra.get("status") or "finished"), str(extra.get("error") or "")
    if settings.reward == NO_REWARD and trial.error == NO_VERDICT:
        return "finished", ""
    return trial.status, trial.error


def _turn(
    step: Mapping[str, Any], text: str, reply: str, model: str, settings: ImportSettings, place: Place
) -> ImportedTurn:
    name = str(step.get("model_name") or model)
    extra, metrics = mapping(step.get("extra")), mapping(step.get("metrics"))
    thought = step.get("reasoning_content") if settings.thinking == "keep" else None
    said = with_thought(content_text(thought, settings, place), text)
    exported = "t" in extra and "context_id" in extra
    turn = ImportedTurn(
        author_of(extra.get("author"), name, settings, place),
        said,
        reply,
        model=name,
        finish_reason=str(extra.get("finish_reason") or "stop") if exported else "stop",
        role="tool" if step.get("tool_calls") else "user",
        cells={cell: extra[cell] for cell in TURN_CELLS if cell in extra} if exported else {},
        **usage_of({**mapping(metrics.get("extra")), **metrics}, said),
    )
    return replace(turn, reasoning_tokens=extra.get("reasoning_tokens", 0)) if exported else turn


def _observation(observation: Any, settings: ImportSettings, place: Place) -> str:
    texts = []
    for result in listed(mapping(observation).get("results")):
        if result is not None and not isinstance(result, Mapping):
            raise place.refuse(f"observation result {result!r}: expected an object")
        texts.append(content_text((result or {}).get("content"), settings, place))
    return lines(*texts)


def _origin(extra: Mapping[str, Any], steps: list[Any]) -> Origin | None:
    """Where the episode was in the run folder that was exported; None for other tools' files."""
    if extra.get("kind") not in KINDS or not all(isinstance(extra.get(n), int) for n in _NUMBERS):
        return None
    numbers = {name: extra[name] for name in _NUMBERS}
    kind = str(extra["kind"])
    k = extra.get("K", 0) if kind == "handback" else 0
    read = [mapping(step) for step in steps]
    copied = sum(bool(step.get("is_copied_context")) for step in read)
    return Origin(
        Key(kind, str(extra.get("task_id")), k=k, **numbers),
        str(extra.get("parent") or ""),
        copied + 1,
        bool(extra.get("accepted", True)),
        tuple(str(field_of(s, "extra.author") or "task") for s in read if s.get("source") != "agent"),
        {name: extra[name] for name in EPISODE_CELLS if name in extra},
    )


def _reward(
    facts: Mapping[str, Any], trial: TrialResult | None, settings: ImportSettings, place: Place
) -> float | None:
    """R of a trajectory: from its own fields, else from Harbor's rewards, of which one must be meant."""
    if settings.reward == NO_REWARD or trial is None:
        return reward_of(facts, settings, place)
    rewards = trial.rewards or {}
    name = settings.reward or ("reward" if "reward" in rewards else next(iter(rewards), ""))
    if not name or (name not in rewards and trial.status != "finished"):
        return None
    if name not in rewards or (not settings.reward and name != "reward" and len(rewards) > 1):
        raise place.refuse(f"result.json has rewards {', '.join(rewards)}: name one with --reward")
    return reward(rewards[name], f"reward {name!r} of result.json", place)


def _account(turns: list[ImportedTurn], trial: TrialResult, settings: ImportSettings) -> None:
    """Count the tokens that Harbor saw and no turn has: of calls that failed, and of summaries."""
    known = [turn.output_tokens for turn in turns if turn.output_tokens is not None]
    if trial.output_tokens is not None and (more := trial.output_tokens - sum(known)) > 0:
        settings.left_out["output token of result.json that no turn has"] += more
