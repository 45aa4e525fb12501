"""TRL Parquet: `messages`, or `prompt` with `completion`, each a text or a list of messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of, task_of
from occupancy.importers.messages import read_messages
from occupancy.importers.parquet import parquet_rows


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file; `text` has no turns and preference pairs have two endings: both are refused."""
    episodes = []
    for row, place in parquet_rows(file):
        if row.get("messages") is not None:
            messages = row["messages"]
        elif row.get("prompt") is not None and row.get("completion") is not None:
            messages = [*_messages(row["prompt"], "user"), *_messages(row["completion"], "assistant")]
        else:
            raise place.refuse(f"columns {', '.join(row)}: expected messages, or prompt and completion")
        prompt, turns = read_messages(messages, settings, place)
        task, R = task_of(row, settings, place), reward_of(row, settings, place)
        episodes.append(ImportedEpisode(task, prompt, turns, str(place), R))
    return episodes


def _messages(value: Any, role: str) -> list[Any]:
    return [{"role": role, "content": value}] if isinstance(value, str) else list(value)
