"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | .., "value"}], ..}, as a JSON list or JSONL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.importers.files import Place, json_objects, without
from occupancy.importers.records import episode_of


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; items with `role` and `content` are read as they are."""
    for record, place in json_objects(file, settings.progress):
        yield conversation_of(record, settings, place)


def conversation_of(record: dict[str, Any], settings: ImportSettings, place: Place) -> ImportedEpisode:
    """The episode of a record."""
    conversation = record.get("conversations")
    if not isinstance(conversation, list):
        raise place.refuse("no list under 'conversations': expected {from, value} items")
    messages = [_message(item, place.within(f"message {n}")) for n, item in enumerate(conversation, 1)]
    return episode_of(record, messages, settings, place, used=("conversations",))


def _message(item: Any, place: Place) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise place.refuse(f"{item!r}: expected an object {{from, value}}")
    role, content = item.get("from", item.get("role")), item.get("value", item.get("content"))
    return without(item, "from", "value") | {"role": role, "content": content}
