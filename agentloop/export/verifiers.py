"""Accepted traces as verifiers' traces.jsonl: a graph of messages, the ids that each adds, and their mask.

An accepted trace is an episode of theirs with one trace: a chain of nodes for each training row, rendered
here. The mask is true for what is trained on; the model of a node's call is the turn's author.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from agentloop.export.trainers import Exporter
from agentloop.render.types import TraceMessage, TrainingRow
from occupancy.record.rows import Row
from occupancy.runs import Run


def verifiers(codec: Any, run: Run) -> Exporter:
    """Rows of traces.jsonl under the student's tokenizer and template; tasks and rewards are the run's."""
    from agentloop.render import render_trace

    columns = ["episode_id", "task_id", "R"]
    episodes = {row["episode_id"]: row for row in run.read("episodes", columns=columns).to_pylist()}

    def rows(messages: Sequence[TraceMessage], trace: str) -> Iterator[Row]:
        nodes: list[Row] = []
        calls: list[Row] = []
        for row in render_trace(codec, messages, trace=trace).rows:
            for number, node in _chain(row, messages, first=len(nodes)):
                if messages[number].role == "assistant":
                    calls.append({"node": len(nodes), "model": messages[number].author})
                nodes.append(node)
        if nodes:
            task = {"type": "fewsteps", "data": {"name": episodes[trace]["task_id"]}}
            R = episodes[trace]["R"]
            whole = {"is_completed": True, "ok": True, "nodes": nodes, "calls": calls}
            whole |= {"agent": {"name": "fewsteps", "config": {}}, "id": trace, "task": task}
            whole["rewards"] = {} if R is None else {"R": {"score": R, "weight": 1.0}}
            yield {"id": trace, "env": {"id": "fewsteps"}, "task": task, "traces": [whole], "trace": trace}

    return rows


def _chain(row: TrainingRow, messages: Sequence[TraceMessage], *, first: int) -> Iterator[tuple[int, Row]]:
    """(index of the message, node) in order; what the template adds belongs to the message after it."""
    last = max(at for at, span in enumerate(row.spans) if span.message >= 0)
    numbers: list[int] = []
    starts: list[int] = []
    begin = 0
    for span in row.spans[: last + 1]:
        if span.message >= 0 and span.message not in numbers[-1:]:
            numbers.append(span.message)
            starts.append(begin)
        if span.message >= 0:
            begin = span.stop
    for at, (number, start, stop) in enumerate(zip(numbers, starts, [*starts[1:], begin], strict=True)):
        message = messages[number]
        said = {"role": message.role, "content": message.content}
        node = {
            "parent": first + at - 1 if at else None,
            "message": said | ({"tool_call_id": ""} if message.role == "tool" else {}),
            "sampled": message.role == "assistant",
            "token_ids": row.ids[start:stop].tolist(),
            "mask": row.targets[start:stop].tolist(),
        }
        yield number, node
