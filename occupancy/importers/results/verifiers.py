"""Rollouts of verifiers and prime-rl: `prompt` with `completion`, or the message graphs of traces.jsonl.

A trace is a graph of messages: each path from a root to a leaf is an episode, so that compactions and
sub-agents are episodes of their own. A turn on several paths is trained on in the first alone. One that no
model sampled, or that its mask or its loss weights leave out, is trained on in none. The log probability of a
turn is the sum over its sampled tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, field_of, first_of, json_objects, listed, mapping
from occupancy.importers.messages import said_in
from occupancy.importers.records import episode_of

_USED = ("prompt", "completion", "example_id", "id")
_OF_A_TRACE = ("nodes", "calls", "task", "rewards", "errors", "agent", "id")
_NOT_KEPT = ("advantages", "reference_logprobs", "trainer_logprobs", "entropies", "semantic_parents")
"""Fields of a node that no table has a place for."""


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is the trace's, or `example_id` or `id` where no record has another."""
    for record, place in json_objects(file, settings.progress):
        traces = record.get("traces", [record] if "nodes" in record else None)
        if traces is not None:
            beside = {name: record[name] for name in (settings.task, settings.reward) if name in record}
            for number, trace in enumerate(listed(traces)):
                yield from _paths({**beside, **mapping(trace)}, settings, place.within(f"trace {number + 1}"))
            continue
        messages = said_in(record, "prompt", "user", place) + said_in(
            record, "completion", "assistant", place
        )
        named = first_of(record, "example_id", "id")
        task = "" if named is None else str(named)
        yield episode_of(record, messages, settings, place, used=_USED, default_task=task)


def _paths(trace: Mapping[str, Any], settings: ImportSettings, place: Place) -> Iterator[ImportedEpisode]:
    nodes = [mapping(node) for node in listed(trace.get("nodes"))]
    parents = [_parent(node, at, place) for at, node in enumerate(nodes)]
    made = [mapping(call) for call in listed(trace.get("calls"))]
    calls = {call["node"]: call for call in made if isinstance(call.get("node"), int)}
    trains = mapping(trace.get("agent")).get("trainable") is not False
    turns = [_turn(node, settings, place.within(f"node {at}")) for at, node in enumerate(nodes)]
    seen: set[int] = set()
    task = first_of(trace, "task.data.name", "task.data.idx")
    errors = listed(trace.get("errors"))
    more: dict[str, Any] = {} if task is None or settings.task == "line" else {"task_id": str(task)}
    if errors:
        told = mapping(errors[0])
        more |= {"R": None, "status": "environment_error", "error": str(told.get("message") or told)[:500]}
    elif not settings.reward:
        more["R"] = _reward(mapping(trace.get("rewards")), place)
    record = {name: trace[name] for name in (settings.task, settings.reward) if name in trace}
    for leaf in sorted(set(range(len(nodes))) - {parent for parent in parents if parent is not None}):
        path = _path(leaf, parents)
        record["tools"] = nodes[path[0]].get("tools") or trace.get("tools")
        made_by = [at for at in path if field_of(nodes[at], "message.role") == "assistant"]
        if not made_by:
            settings.left_out["path without a turn"] += 1
            continue
        messages = [_message(nodes[at], calls.get(at, {})) for at in path]
        episode = episode_of(record, messages, settings, place, used=_OF_A_TRACE, **more)
        yield replace(
            episode,
            turns=tuple(
                replace(turn, **turns[at] | {"train": trains and turns[at]["train"] and at not in seen})
                for turn, at in zip(episode.turns, made_by, strict=True)
            ),
        )
        seen.update(path)


def _turn(node: Mapping[str, Any], settings: ImportSettings, place: Place) -> dict[str, Any]:
    """What a node's tokens say of its turn, as fields of an ImportedTurn."""
    for name in _NOT_KEPT:
        if node.get(name):
            settings.left_out[f"node field {name!r}"] += 1
    read = ("token_ids", "mask", "logprobs")
    ids, mask, logprobs = (_numbers(node.get(name), name, place) for name in read)
    start = mask.index(1) if 1 in mask else len(mask)
    if len(mask) != len(ids) or not all(mask[start:]):
        raise place.refuse("mask: expected one for each token id, which names the whole turn or nothing")
    weights = set[float]()
    for name, given in mapping(node.get("loss_weights")).items():
        stream = _numbers(given, f"loss_weights {name!r}", place)
        if len(stream) != len(ids) or any(stream[:start]):
            raise place.refuse(f"loss_weights {name!r}: expected one for each token id, 0 outside the mask")
        weights |= set(stream[start:])
    if len(weights) > 1 or not weights <= {0, 1}:
        raise place.refuse("loss_weights: expected 0 or 1 for the whole turn; others cannot be kept")
    sampled = tuple(ids[start:])
    if sampled and not settings.token_ids:
        settings.left_out["sampled ids of a turn (--token-ids keeps them)"] += 1
    return {
        "train": node.get("sampled") is True and weights != {0} and bool(sampled or not ids),
        "token_ids": sampled if settings.token_ids and sampled else None,
        "cells": {"logprob": float(sum(logprobs))} if logprobs else {},
    }


def _numbers(given: Any, name: str, place: Place) -> list[Any]:
    numbers = listed(given)
    fits = all(isinstance(n, int | float) for n in numbers)
    if name == "token_ids":
        fits = all(isinstance(n, int) and 0 <= n < 2**31 for n in numbers)
    if not fits:
        raise place.refuse(f"{name}: expected a list of numbers")
    return numbers


def _parent(node: Mapping[str, Any], at: int, place: Place) -> int | None:
    parent = node.get("parent")
    if parent is None or (isinstance(parent, int) and 0 <= parent < at):
        return parent
    raise place.refuse(f"node {at} has parent {parent!r}: expected an earlier node, or none")


def _path(leaf: int, parents: Sequence[int | None]) -> list[int]:
    path: list[int] = []
    at: int | None = leaf
    while at is not None:
        path.append(at)
        at = parents[at]
    return path[::-1]


def _message(node: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    message = {name: value for name, value in mapping(node.get("message")).items() if value is not None}
    if message.get("role") != "assistant":
        return message
    calls = [mapping(each) for each in listed(message.pop("tool_calls", []))]
    if calls:
        # verifiers keeps name and arguments beside the id; OpenAI's form has them inside `function`.
        message["tool_calls"] = [each if "function" in each else {"function": each} for each in calls]
    told = {name: call[name] for name in ("model", "finish_reason") if call.get(name) is not None}
    usage = dict(mapping(call.get("usage")))
    cached = usage.get("cached_input_tokens")
    if isinstance(cached, int) and isinstance(usage.get("prompt_tokens"), int):
        usage["prompt_tokens"] += cached  # which counts what is cached apart
    return message | told | {"usage": usage}


def weighted_reward(rewards: Mapping[str, Any]) -> float | None:
    """The weighted sum of a trace's scores; None where one is missing, or all.

    Raises:
        KeyError, TypeError, ValueError: a score that is not {score, weight}.
    """
    if not rewards or None in rewards.values():
        return None
    return sum(float(score["score"]) * float(score["weight"]) for score in rewards.values())


def _reward(rewards: Mapping[str, Any], place: Place) -> float | None:
    try:
        R = weighted_reward(rewards)
    except (KeyError, TypeError, ValueError):
        raise place.refuse("rewards: expected {score, weight} each") from None
    if R is not None and not 0 <= R <= 1:
        raise place.refuse(f"its reward is {R:g}: expected 0 to 1; name another with --reward, or none")
    return R
