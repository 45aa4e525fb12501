"""Accepted traces of a run folder, rendered: what is trained on, and what the length rule took away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agentloop.render.codec import Codec
from agentloop.render.training_rows import render_trace
from agentloop.render.types import LengthRule, Rendered, TraceMessage, read_messages
from occupancy.record.errors import DataError
from occupancy.record.finish import has_text, retained_tokens
from occupancy.record.rows import KEY
from occupancy.runs import Run, table_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class RunTrace:
    """One accepted trace with its rows."""

    episode_id: str
    task_id: str
    cluster_id: str
    key: Mapping[str, Any]
    """Columns of the key that the tables share."""
    messages: tuple[TraceMessage, ...]
    turns: tuple[int, ...]
    """t of each teacher turn in the messages."""
    rendered: Rendered
    C_tr: int
    """Output tokens of the turns that are trained on, as the provider counts them."""


@dataclass(frozen=True)
class RenderCounts:
    """What rendering a run kept and dropped."""

    traces: int
    """Accepted traces with something to train on."""
    traces_dropped: int
    """Accepted traces that the length rule emptied."""
    turns: int
    """Teacher turns that are targets."""
    turns_dropped: Mapping[str, int]
    """Teacher turns that are not, by reason."""
    rows: int
    rows_with_drift: int
    """Rows that encoding at once would give other ids: sampled ids, or a token across a turn's edge."""
    C_tr: int
    target_tokens: int
    sequence_tokens: int

    @property
    def left_out(self) -> str:
        """What is not trained on, in words; empty where everything is."""
        if not self.turns_dropped and not self.traces_dropped:
            return ""
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in self.turns_dropped.items())
        longer = "; rows may be longer with --set row_tokens=N, or are cut with --overflow head"
        return (
            f"teacher turns left out: {sum(self.turns_dropped.values()):,} ({reasons}), traces left out "
            f"whole: {self.traces_dropped:,} of {self.traces + self.traces_dropped:,}"
            f"{longer if 'row_tokens' in self.turns_dropped else ''}"
        )


def failed_traces(run: Run) -> tuple[int, int]:
    """(accepted traces of episodes with R = 0, all accepted traces); a missing reward is no failure."""
    rewards = run.read("episodes", columns=["episode_id", "R"]).to_pylist()
    failed = {row["episode_id"] for row in rewards if row["R"] == 0}
    traces = run.column("traces", "episode_id")
    return sum(name in failed for name in traces), len(traces)


def said_of_failures(counts: Sequence[tuple[int, int]]) -> str:
    """A sentence on what `failed_traces` found in each run; empty where no episode failed."""
    failed, traces = (sum(count) for count in zip(*counts, strict=True))
    if not failed:
        return ""
    return (
        f"{failed:,} of {traces:,} traces are of episodes with R = 0: to leave them out, collect with "
        f"--set phi=success, or import only what succeeded"
    )


class Rendering:
    """Renders traces and keeps what it made of the last `most`: cuts of one collection share their traces."""

    def __init__(self, codec: Codec, *, most: int = 8192) -> None:
        self.codec = codec
        self.render: Callable[[tuple[TraceMessage, ...], LengthRule | None, str], Rendered] = lru_cache(most)(
            lambda messages, rule, trace: render_trace(codec, messages, rule=rule, trace=trace)
        )
        """What `render_trace` gives for messages, rule and the trace's name."""


def render_run(run: Run, codec: Codec | Rendering, *, rule: LengthRule | None = None) -> Iterator[RunTrace]:
    """Every accepted trace of a run, in key order; those that the rule empties have no rows.

    Raises:
        DataError: A trace cannot be rendered so that the teacher's turns alone are targets.
    """
    rendering = codec if isinstance(codec, Rendering) else Rendering(codec, most=0)
    traces = run.read("traces", columns=["episode_id", *KEY, "messages"]).to_pylist()
    columns = ["episode_id", "cluster_id"]
    clusters = {e["episode_id"]: e["cluster_id"] for e in run.read("episodes", columns=columns).to_pylist()}
    taught = _taught(run)
    for row in traces:
        trace = row["episode_id"]
        if trace not in clusters:
            raise DataError(f"trace {trace} is no episode of {run.folder}: the run folder is not whole")
        messages = read_messages(row["messages"], trace=trace)
        rendered = rendering.render(messages, rule, trace)
        own = _in_trace(taught.get(trace, {}), messages)
        teacher = [i for i, m in enumerate(messages) if m.author == "teacher"]
        if len(own) != len(teacher):
            raise DataError(
                f"{trace}: the messages hold {len(teacher)} teacher turns, but {len(own)} have output "
                f"tokens: expected one count a turn"
            )
        outputs = dict(zip(teacher, own.values(), strict=True))
        yield RunTrace(
            episode_id=trace,
            task_id=row["task_id"],
            cluster_id=clusters[trace],
            key={name: row[name] for name in KEY},
            messages=messages,
            turns=tuple(own),
            rendered=rendered,
            C_tr=sum(outputs[i] for i in rendered.kept),
        )


def rendered_traces(run: Run, codec: Codec, *, rule: LengthRule | None = None) -> pa.Table:
    """The run's table `traces` with its rendered columns filled; the run itself is left as it is.

    Args:
        run: The run.
        codec: Tokenizer and chat template, from `agentloop.render.load_codec`.
        rule: Length limits of turns and rows; None: no limit.

    Raises:
        DataError: As `render_run`.
    """
    rows = run.read("traces").to_pylist()
    for row, trace in zip(rows, render_run(run, codec, rule=rule), strict=True):
        rendered = trace.rendered
        lengths = [len(r.ids) for r in rendered.rows]
        row |= {
            "target_turns": len(rendered.kept),
            "C_tr": trace.C_tr,
            # The ids of its training rows end to end, and where each row begins.
            "token_ids": [i for r in rendered.rows for i in r.ids.tolist()],
            "row_starts": [sum(lengths[:k]) for k in range(len(lengths))],
            "targets": [t for r in rendered.rows for t in r.targets.tolist()],
            "target_tokens": rendered.target_tokens,
            "sequence_tokens": rendered.sequence_tokens,
        }
    return table_of("traces", rows)


def _taught(run: Run) -> dict[str, dict[int, int]]:
    """Episode -> t of each whole turn of the teacher -> its output tokens that are in its text; -1 in a turn
    that is no target."""
    taught: dict[str, dict[int, int]] = {}
    columns = ["episode_id", "t", "author", "text", "finish_reason", "output_tokens", "reasoning_tokens"]
    for turn in run.read("turns", columns=columns).to_pylist():
        # A turn that was cut is in no trace.
        if turn["author"] == "teacher" and turn["finish_reason"] == "stop":
            counts = (turn["text"], turn["output_tokens"], turn["reasoning_tokens"])
            taught.setdefault(turn["episode_id"], {})[turn["t"]] = (
                retained_tokens(*counts) if has_text(turn["text"]) else -1
            )
    return taught


def _in_trace(taught: Mapping[int, int], messages: Sequence[TraceMessage]) -> dict[int, int]:
    """The turns that a trace holds: it ends with its last target."""
    known, held = list(taught.items()), sum(m.author == "teacher" for m in messages)
    while len(known) > held and known[-1][1] < 0:
        known.pop()
    return dict(known)


def count(traces: Sequence[RunTrace]) -> RenderCounts:
    """Sums over rendered traces."""
    rows = [row for trace in traces for row in trace.rendered.rows]
    reasons = Counter(reason for trace in traces for _, reason in trace.rendered.dropped)
    return RenderCounts(
        traces=sum(bool(trace.rendered.rows) for trace in traces),
        traces_dropped=sum(not trace.rendered.rows for trace in traces),
        turns=sum(len(trace.rendered.kept) for trace in traces),
        turns_dropped=dict(sorted(reasons.items())),
        rows=len(rows),
        rows_with_drift=sum(row.drift for row in rows),
        C_tr=sum(trace.C_tr for trace in traces),
        target_tokens=sum(trace.rendered.target_tokens for trace in traces),
        sequence_tokens=sum(trace.rendered.sequence_tokens for trace in traces),
    )
