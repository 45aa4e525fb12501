"""Rollouts of verifiers and prime-rl: {"prompt": [..], "completion": [..], "reward", "example_id", ..}."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, field_of
from occupancy.importers.files import Place, json_objects, parse
from occupancy.importers.records import episode_of

_USED = ("prompt", "completion", "example_id", "id")


def read(file: Path, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of a file; the task is `example_id` (or `id`) where `settings.task` is in no record."""
    for record, place in json_objects(file, settings.progress):
        messages = [*_said(record, "prompt", "user", place), *_said(record, "completion", "assistant", place)]
        named = None
        if settings.task != "line" and field_of(record, settings.task) is None:
            named = next((record[k] for k in ("example_id", "id") if record.get(k) is not None), None)
        more = {} if named is None else {"task_id": str(named)}
        yield episode_of(record, messages, settings, place, used=_USED, **more)


def _said(record: dict[str, Any], name: str, role: str, place: Place) -> list[Any]:
    value = record.get(name)
    if isinstance(value, str) and value.lstrip().startswith('[{"'):
        value = parse(value, place)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise place.refuse(f"{name} is a {type(value).__name__}: expected messages or text")
    return value
