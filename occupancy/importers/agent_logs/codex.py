"""Codex session logs (rollout-*.jsonl): {"type", "payload"} a line; a session is an episode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.agent_logs.responses import Message, add_item
from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects, mapping
from occupancy.importers.messages import content_text
from occupancy.importers.records import episode_of


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """The episode of a file; its task is the session's id. A compacted session is refused."""
    whole, messages, model = Place(file), list[Message](), ""
    session: dict[str, Any] = {}
    for line, place in json_objects(file, settings.progress):
        kind, payload = line.get("type"), line.get("payload")
        if not isinstance(payload, dict):  # lines of early versions are the items themselves
            payload = line
            kind = "session_meta" if "instructions" in line else "response_item" if kind else ""
        if kind == "session_meta":
            session = session or payload
        elif kind == "turn_context":
            model = str(payload.get("model") or model)
        elif kind == "response_item":
            add_item(messages, payload, settings, place)
            if messages and messages[-1]["role"] == "assistant":
                messages[-1].setdefault("model", model)
        elif kind == "event_msg" and payload.get("type") == "token_count":
            _count(messages, payload.get("info"))
        elif kind == "compacted" or payload.get("type") in ("context_compacted", "thread_rolled_back"):
            raise place.refuse("the session was compacted or rolled back: later turns had another context")
    task = session.get("id") or file.name.partition(".")[0]
    system = session.get("base_instructions") or session.get("instructions") or ""
    text = content_text(system.get("text") if isinstance(system, dict) else system, settings, whole)
    yield episode_of({"system": text}, messages, settings, whole, task_id=str(task), R=None)


def _count(messages: list[Message], info: Any) -> None:
    """Tokens of the model call that made the last turn."""
    usage = mapping(info).get("last_token_usage")
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    if usage and last is not None and not last.get("usage"):
        last["usage"] = usage
