"""A run's traces or episodes as a folder for another tool, with the settings that it needs."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentloop.export.atif import documents
from agentloop.export.inspect_log import log_of
from agentloop.export.trainers import CONFIG, EXPORTERS, by_turn, tokens
from agentloop.export.verifiers import verifiers
from agentloop.render.traces import failed_traces
from agentloop.render.types import TraceMessage, read_messages
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError
from occupancy.runs import Run

_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<\uff5c[^<>\uff5c]{1,60}\uff5c>|\[/?INST\]|\[gMASK\]|</?s>"
    r"|<(?:bos|eos|pad|unk|sop|eop|start_of_turn|end_of_turn)>"
)
"""Special tokens of ChatML, Llama, DeepSeek, Mistral, GLM and Gemma, as they look in texts."""
_FILES = {"verl": "train.parquet", "tokens": "train.parquet", "verifiers": "traces.jsonl"}


def write_episodes(run: Run, out: Path, form: str) -> dict[str, Any]:
    """Write the episodes into the new folder `out`, as ATIF one document each, as `inspect` one log; returns
    their number."""
    written = 0
    with whole_folder(out) as draft:
        if form == "inspect":
            log = log_of(run)
            written = len(log["samples"])
            (draft / "log.json").write_text(json.dumps(log, ensure_ascii=False), "utf-8")
        else:
            for written, document in enumerate(documents(run), start=1):
                text = json.dumps(document, ensure_ascii=False)
                (draft / f"{written:06d}.json").write_text(text, "utf-8")
    return {"episodes": written}


def write_traces(
    run: Run, out: Path, form: str, *, model: str | None = None, hub: bool = False, by: str = "trace"
) -> dict[str, Any]:
    """Write the accepted traces in the form of a trainer; returns what was written and left out.

    Args:
        run: where the traces are.
        out: a new folder.
        form: `tokens`, `verifiers`, or a name of `EXPORTERS`.
        model: folder of tokenizer and chat template, for `tokens` and `verifiers`.
        hub: whether `model` may be a name on the Hugging Face hub.
        by: what a row is of verl and axolotl: a trace with all of its targets, or a turn, its only target.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    traces = _messages(run)
    failed, _ = failed_traces(run)
    exporter = EXPORTERS.get(form)
    if exporter is None:
        from agentloop.render import load_codec

        codec = load_codec(str(model), hub=hub)
        exporter = tokens(codec) if form == "tokens" else verifiers(codec, run)
    if by == "turn":
        exporter = by_turn(exporter)
    special = _special(traces) if form in EXPORTERS else {}
    rows = [row | {"task_id": task} for name, task, messages in traces for row in exporter(messages, name)]
    name = _FILES.get(form, "train.jsonl")
    with whole_folder(out) as draft:
        if name.endswith("parquet"):
            pq.write_table(pa.Table.from_pylist(rows), draft / name)
        else:
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            with (draft / name).open("w", encoding="utf-8") as handle:
                handle.writelines(lines)
        told = CONFIG[form].format(file=name) + _warning(special)
        (draft / "how-to-train.txt").write_text(told, "utf-8")
        if form in ("verl", "tokens"):
            shutil.copyfile(Path(__file__).with_name("verl_dataset.py"), draft / "verl_dataset.py")
    written = {row["trace"] for row in rows}
    taught = [m for _, _, messages in traces for m in messages if m.train]
    return {
        "rows": len(rows),
        "traces": len(written),
        "traces_failed": failed,
        "traces_without_target": len(traces) - len(written),
        "turns_cut": sum(m.no_target == "cut" for m in taught),
        "turns_empty": sum(m.no_target == "empty" for m in taught),
        "texts_like_special_tokens": sum(special.values()),
        "file": name,
    }


def _special(traces: list[tuple[str, str, tuple[TraceMessage, ...]]]) -> Counter[str]:
    """Texts in messages that look like the special tokens of some tokenizer."""
    said = (m.content for _, _, messages in traces for m in messages)
    return Counter(found for text in said for found in _SPECIAL.findall(text))


def _warning(special: Mapping[str, int]) -> str:
    if not special:
        return ""
    named = ", ".join(f"{text!r} ({n:,})" for text, n in sorted(special.items())[:8])
    return (
        f"# Messages hold texts that look like special tokens: {named}.\n"
        f"# A trainer that renders text takes them for the tokens where its tokenizer has them, so that a\n"
        f"# web page can end a turn: --format tokens keeps them text.\n"
    )


def _messages(run: Run) -> list[tuple[str, str, tuple[TraceMessage, ...]]]:
    """(episode_id, task_id, messages) of every accepted trace."""
    traces = run.read("traces", columns=["episode_id", "task_id", "messages"]).to_pylist()
    if not traces:
        raise DataError(f"{run.folder} holds no accepted trace: collect some first")
    return [
        (t["episode_id"], t["task_id"], read_messages(t["messages"], trace=t["episode_id"])) for t in traces
    ]
