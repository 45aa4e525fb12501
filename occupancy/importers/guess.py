"""Which format a file has, seen in its first record, never in its name."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from occupancy.importers.files import Place, head_of, json_records
from occupancy.importers.training_data.parquet import is_table, names_of
from occupancy.record.errors import DataError

_RULES: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("atif", lambda r: str(r.get("schema_version", "")).startswith("ATIF") or {"steps", "agent"} <= set(r)),
    ("inspect", lambda r: {"samples", "eval"} <= set(r)),
    ("swe-agent", lambda r: isinstance(r.get("trajectory"), list) and "info" in r),
    ("mini-swe-agent", lambda r: isinstance(r.get("messages"), list) and isinstance(r.get("info"), Mapping)),
    ("codex", lambda r: r.get("type") in ("session_meta", "response_item", "event_msg", "turn_context")),
    ("codex", lambda r: {"id", "timestamp", "instructions"} <= set(r)),
    ("claude-code", lambda r: "session_id" in r and r.get("type") in ("system", "user", "assistant")),
    ("claude-code", lambda r: "sessionId" in r or {"parentUuid", "type"} <= set(r)),
    ("claude-code", lambda r: r.get("type") in ("summary", "file-history-snapshot")),
    ("openhands", lambda r: isinstance(r.get("history"), list) and "instance_id" in r),
    ("openhands", lambda r: isinstance(r.get("messages"), list) and isinstance(r.get("response"), Mapping)),
    ("openhands", lambda r: "source" in r and ("action" in r or "observation" in r)),
    ("tau-bench", lambda r: isinstance(r.get("traj"), list)),
    ("tau-bench", lambda r: isinstance(r.get("simulations"), list)),
    ("sharegpt", lambda r: "conversations" in r),
    ("chat", lambda r: "messages" in r or isinstance(r.get("trajectory"), list)),
    ("verifiers", lambda r: {"prompt", "completion"} <= set(r) or "nodes" in r),
    ("verifiers", lambda r: {"task", "traces"} <= set(r)),
    ("verl-rollouts", lambda r: {"input", "output"} <= set(r) and ("score" in r or "step" in r)),
    ("alpaca", lambda r: {"instruction", "output"} <= set(r) or {"query", "response"} <= set(r)),
)
"""In order: the first that fits is the format."""
_NAME = re.compile(r'"(\w+)"\s*:')


def format_of(file: Path) -> str:
    """The format of a file; refused where no rule fits."""
    if is_table(head_of(file, 8)):
        verl = {"responses", "extra_info", "trace"} & names_of(file)
        return "verl" if verl else "trl"
    if zipfile.is_zipfile(file):
        return "inspect"
    record = _first_record(file)
    if not isinstance(record, Mapping):
        raise Place(file).refuse("no record in it that tells the format; give --format")
    for name, fits in _RULES:
        if fits(record):
            return name
    raise Place(file).refuse(
        f"fields {', '.join(map(str, record)) or 'none'}: no known format; give --format, or write it as "
        f"chat lines (docs/import.md, Other formats)"
    )


def _first_record(file: Path) -> Any:
    """The first record of a file; of one that cannot be parsed, an object of the names in it."""
    try:
        record, _ = next(json_records(file), (None, None))
    except DataError:
        # The importer says what is wrong, with the line, where the names tell which one it is.
        names = set(_NAME.findall(head_of(file).decode("utf-8", "replace")))
        if {"messages", "conversations"} & names:
            return {name: [] for name in names}
        raise
    while isinstance(record, list) and record:
        record = record[0]
    return record
