"""Training rows from run folders: pi_0 on D_BC gives pi_1, pi_0 on D_BC and D_OP gives the final student."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agentloop.render import Codec, LengthRule
from agentloop.render.traces import RenderCounts, Rendering, RunTrace, count, render_run
from occupancy.record.errors import DataError
from occupancy.record.reading import read_json
from occupancy.runs import open_run
from sft.packing import TrainingRows, rows_of

if TYPE_CHECKING:
    from sft.held_out import HeldOut

Classes = Mapping[str, Sequence[str]]
"""episode_id -> class of the context of each of its teacher turns."""


@dataclass(frozen=True, eq=False)
class Data:
    """The rows of one or several runs, and where they come from."""

    rows: TrainingRows
    traces: tuple[RunTrace, ...]
    """Those with something to train on."""
    classes: tuple[Sequence[str], ...]
    """Of each trace: the class of the context of each of its teacher turns."""
    counts: RenderCounts
    runs: tuple[str, ...]
    r_tokens: float
    """Share of targets from D_OP: traces that a rollout was switched for, at its first turn too."""
    r_tasks: float
    """Share of tasks with a trace in D_OP among those with any trace."""


def load_rows(
    runs: Sequence[str | Path],
    codec: Codec | Rendering,
    *,
    rule: LengthRule | None = None,
    classes: Classes | None = None,
) -> Data:
    """The training rows of all accepted traces of some runs.

    Args:
        runs: run folders: D_BC, or D_BC and D_OP.
        codec: the student's tokenizer and chat template, or a `Rendering` that remembers traces.
        rule: limits on turns and rows.
        classes: classes of contexts; None: demonstrations and student prefixes.

    Raises:
        DataError: an episode that is in the runs twice, or nothing to train on.
    """
    traces: list[RunTrace] = []
    for folder in runs:
        traces += render_run(open_run(folder), codec, rule=rule)
    found = Counter(trace.episode_id for trace in traces)
    if twice := sorted(name for name, n in found.items() if n > 1)[:3]:
        raise DataError(f"episodes {twice} are in the runs more than once: name each run once")
    used = [trace for trace in traces if trace.rendered.rows]
    if not used:
        folders = ", ".join(map(str, runs))
        raise DataError(f"{folders}: no trace to train on: {count(traces).left_out or 'none was accepted'}")
    named = tuple(_classes(trace, classes) for trace in used)
    flat = [(trace, own, row) for trace, own in zip(used, named, strict=True) for row in trace.rendered.rows]
    rows = rows_of(
        [row for _, _, row in flat],
        classes=[own for _, own, _ in flat],
        clusters=[trace.cluster_id for trace, _, _ in flat],
        episodes=[trace.episode_id for trace, _, _ in flat],
    )
    mixed = [trace for trace in used if on_policy(trace)]
    targets = sum(trace.rendered.target_tokens for trace in used)
    return Data(
        rows=rows,
        traces=tuple(used),
        classes=named,
        counts=count(traces),
        runs=tuple(str(r) for r in runs),
        r_tokens=sum(trace.rendered.target_tokens for trace in mixed) / targets,
        r_tasks=len({t.task_id for t in mixed}) / len({t.task_id for t in used}),
    )


def on_policy(trace: RunTrace) -> bool:
    """Whether the trace is in D_OP; demonstrations have no rollout."""
    return int(trace.key["rollout"]) >= 0


def read_classes(file: str | Path) -> Classes:
    """Classes of contexts from a JSON file {episode_id: [class of each teacher turn, ...]}."""
    found = read_json(file, then="expected {episode_id: [class, ...]}")
    if not isinstance(found, dict) or not all(isinstance(classes, list) for classes in found.values()):
        raise DataError(f"{file}: expected one JSON object {{episode_id: [class, ...]}}")
    return {episode: [str(name) for name in classes] for episode, classes in found.items()}


def _classes(trace: RunTrace, classes: Classes | None) -> Sequence[str]:
    turns = sum(m.author == "teacher" for m in trace.messages)
    if classes is None:
        prefix = any(m.author == "student" for m in trace.messages)
        return ["student prefix" if prefix else "demonstration"] * turns
    own = classes.get(trace.episode_id, ())
    if len(own) != turns:
        raise DataError(f"{trace.episode_id} has {turns} teacher turns, but {len(own)} classes are given")
    return own


def turn_rows(
    training_id: str, data: Data, *, before: HeldOut | None, after: HeldOut | None
) -> list[dict[str, Any]]:
    """Rows of `trained_turns`; turns that a length rule took away have none."""
    first, last = _by_turn(before), _by_turn(after)
    rows = []
    for trace, classes in zip(data.traces, data.classes, strict=True):
        for row in trace.rendered.rows:
            depths, targets = np.unique(row.depth[row.targets], return_counts=True)
            for j, n in zip(depths.tolist(), targets.tolist(), strict=True):
                turn = (trace.episode_id, j)
                rows.append(
                    {
                        "training_id": training_id,
                        "episode_id": trace.episode_id,
                        **trace.key,
                        "cluster_id": trace.cluster_id,
                        "t": trace.turns[j - 1],
                        "depth": j,
                        "context_class": classes[j - 1],
                        "targets": n,
                        "held_out": turn in last,
                        "nll_before": first.get(turn),
                        "nll": last.get(turn),
                    }
                )
    return rows


def _by_turn(held: HeldOut | None) -> dict[tuple[str, int], float]:
    return {} if held is None else {(episode, j): nll for episode, j, nll, _ in held.by_turn}
