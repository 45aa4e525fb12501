"""Rollouts of verifiers and prime-rl: `prompt` with `completion`, or the message graphs of traces.jsonl.

A trace is a graph of messages: each path from a root to a leaf is an episode, so that compactions and
sub-agents are episodes of their own. A turn on several paths is trained on in the first alone, and one
that no model sampled in none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, field_of
from occupancy.importers.files import Place, json_objects, listed, mapping, parse
from occupancy.importers.records import episode_of

_USED = ("prompt", "completion", "example_id", "id")
_OF_A_TRACE = ("nodes", "calls", "task", "rewards", "errors", "agent", "id")


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is the trace's, or `example_id` or `id` where no record has another."""
    for record, place in json_objects(file, settings.progress):
        traces = record.get("traces", [record] if "nodes" in record else None)
        if traces is not None:
            for number, trace in enumerate(listed(traces)):
                yield from _paths(mapping(trace), settings, place.within(f"trace {number + 1}"))
            continue
        messages = [*_said(record, "prompt", "user", place), *_said(record, "completion", "assistant", place)]
        named = None
        if settings.task != "line" and field_of(record, settings.task) is None:
            named = next((record[k] for k in ("example_id", "id") if record.get(k) is not None), None)
        more = {} if named is None else {"task_id": str(named)}
        yield episode_of(record, messages, settings, place, used=_USED, **more)


def _paths(trace: Mapping[str, Any], settings: ImportSettings, place: Place) -> Iterator[ImportedEpisode]:
    nodes = [mapping(node) for node in listed(trace.get("nodes"))]
    parents = [_parent(node, at, place) for at, node in enumerate(nodes)]
    made = [mapping(call) for call in listed(trace.get("calls"))]
    calls = {call["node"]: call for call in made if isinstance(call.get("node"), int)}
    trained = mapping(trace.get("agent")).get("trainable") is not False
    seen: set[int] = set()
    data = mapping(mapping(trace.get("task")).get("data"))
    task = next((data[name] for name in ("name", "idx") if data.get(name) is not None), None)
    errors = listed(trace.get("errors"))
    more: dict[str, Any] = {} if task is None or settings.task == "line" else {"task_id": str(task)}
    if errors:
        told = mapping(errors[0])
        more |= {"R": None, "status": "environment_error", "error": str(told.get("message") or told)[:500]}
    elif not settings.reward:
        more["R"] = _reward(mapping(trace.get("rewards")), place)
    record = {
        name: value for name, value in trace.items() if name in ("tools", settings.task, settings.reward)
    }
    for leaf in sorted(set(range(len(nodes))) - {parent for parent in parents if parent is not None}):
        path = _path(leaf, parents)
        messages = [_message(nodes[at], calls.get(at, {}), train=trained and at not in seen) for at in path]
        seen.update(path)
        if any(message.get("role") == "assistant" for message in messages):
            yield episode_of(record, messages, settings, place, used=_OF_A_TRACE, **more)
        else:
            settings.left_out["path without a turn"] += 1


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


def _message(node: Mapping[str, Any], call: Mapping[str, Any], *, train: bool) -> dict[str, Any]:
    message = {name: value for name, value in mapping(node.get("message")).items() if value is not None}
    if message.get("role") != "assistant":
        return message
    calls = [mapping(each) for each in listed(message.pop("tool_calls", []))]
    if calls:
        # verifiers keeps name and arguments beside the id; OpenAI's form has them inside `function`.
        message["tool_calls"] = [each if "function" in each else {"function": each} for each in calls]
    told = {name: call[name] for name in ("model", "usage", "finish_reason") if call.get(name) is not None}
    return message | told | {"train": train and node.get("sampled") is True}


def _reward(rewards: Mapping[str, Any], place: Place) -> float | None:
    """The weighted sum of a trace's scores; None where it has none."""
    if not rewards:
        return None
    try:
        R = sum(float(score["score"]) * float(score["weight"]) for score in rewards.values())
    except (KeyError, TypeError, ValueError):
        raise place.refuse("rewards: expected {score, weight} each") from None
    if not 0 <= R <= 1:
        raise place.refuse(f"its reward is {R:g}: expected 0 to 1; name another with --reward, or none")
    return R


def _said(record: dict[str, Any], name: str, role: str, place: Place) -> list[Any]:
    value = record.get(name)
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        value = parse(value, place)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise place.refuse(f"{name} is a {type(value).__name__}: expected messages or text")
    return value
