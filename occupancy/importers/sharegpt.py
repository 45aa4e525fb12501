"""ShareGPT: {"conversations": [{"from": "human" | "gpt" | .., "value"}], ..}, as a JSON list or JSONL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.chat import json_lines
from occupancy.importers.episodes import ImportedEpisode, ImportSettings, Place, read_json
from occupancy.importers.messages import episode_of

ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "observation": "tool",
    "tool": "tool",
}


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file."""
    episodes = []
    for record, place in _records(file):
        messages = []
        conversation = record.get("conversations")
        for number, item in enumerate(conversation if isinstance(conversation, list) else (), start=1):
            speaker = item.get("from") if isinstance(item, dict) else item
            if speaker not in ROLES:
                here = place.within(f"message {number}")
                raise here.refuse(f"speaker {speaker!r}: expected one of {', '.join(ROLES)}")
            messages.append({**item, "role": ROLES[speaker], "content": item.get("value")})
        system = record.get("system")
        if isinstance(system, str) and system:
            messages.insert(0, {"role": "system", "content": system})
        episodes.append(episode_of(record, messages, settings, place))
    return episodes


def _records(file: Path) -> Iterator[tuple[dict[str, Any], Place]]:
    with file.open(encoding="utf-8") as text:
        head = text.read(4096).lstrip()
    if not head.startswith("["):
        yield from json_lines(file)
        return
    for number, record in enumerate(read_json(Place(file, "whole file")), start=1):
        place = Place(file, f"record {number}")
        if not isinstance(record, dict):
            raise place.refuse(f"a {type(record).__name__}: expected an object")
        yield record, place
