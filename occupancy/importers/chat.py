"""Chat JSONL: a line an episode, {"messages": [{"role", "content", "author"?, "model"?, ..}], ..}."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, Place
from occupancy.importers.messages import episode_of


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file; empty lines are allowed."""
    return [episode_of(record, record.get("messages"), settings, place) for record, place in json_lines(file)]


def json_lines(file: Path) -> Iterator[tuple[dict[str, Any], Place]]:
    """Objects of a JSONL file with their lines."""
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            place = Place(file, f"line {number}")
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                raise place.refuse(f"not JSON ({error})") from error
            if not isinstance(record, dict):
                raise place.refuse(f"a {type(record).__name__}: expected an object")
            yield record, place
