"""verl Parquet: multi-turn `messages`, or `prompt` (messages) with generated `responses` (texts)."""

from __future__ import annotations

from pathlib import Path

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, reward_of, task_of
from occupancy.importers.messages import read_messages
from occupancy.importers.parquet import parquet_rows, unpacked


def read(file: Path, settings: ImportSettings) -> list[ImportedEpisode]:
    """Episodes of a file; every response to a prompt is one."""
    episodes = []
    for raw, place in parquet_rows(file):
        row = unpacked(raw)
        task, R = task_of(row, settings, place), reward_of(row, settings, place)
        if row.get("messages") is not None:
            conversations = [row["messages"]]
        elif row.get("prompt") is not None and row.get("responses") is not None:
            responses = [row["responses"]] if isinstance(row["responses"], str) else row["responses"]
            conversations = [[*row["prompt"], {"role": "assistant", "content": r}] for r in responses]
        else:
            raise place.refuse(f"columns {', '.join(raw)}: expected messages, or prompt and responses")
        for messages in conversations:
            prompt, turns = read_messages(messages, settings, place)
            episodes.append(ImportedEpisode(task, prompt, turns, str(place), R))
    return episodes
