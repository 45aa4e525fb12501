"""Recorded conversations of other tools as rows of `episodes` and `turns`.

    chat       JSONL, a line an episode: {"messages": [{"role", "content", ..}], ..}
    sharegpt   JSON or JSONL: {"conversations": [{"from", "value"}], ..}
    verl       Parquet: `messages`, or `prompt` with `responses`
    trl        Parquet: `messages`, or `prompt` with `completion`
    atif       Agent Trajectory Interchange Format 1.0 to 1.8, a JSON file an episode
    inspect    Inspect logs, .json or .eval
    swe-agent  .traj files

The author of every turn is taken from the file or from the settings, never guessed. A file is refused as
a whole, with the line and the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from occupancy.importers.episodes import ImportedEpisode, ImportSettings, numbered
from occupancy.record.errors import DataError, InputError
from occupancy.record.reading import reading

FORMATS = {
    "atif": "atif:read",
    "chat": "chat:read",
    "inspect": "inspect_log:read",
    "sharegpt": "sharegpt:read",
    "swe-agent": "swe_agent:read",
    "trl": "parquet:read_trl",
    "verl": "parquet:read_verl",
}
"""Module and function of each."""


def read_episodes(
    files: Sequence[str | Path], *, format: str, settings: ImportSettings | None = None
) -> list[ImportedEpisode]:
    """Episodes of files in one format, in order; raises DataError with file, line and reason."""
    if format not in FORMATS:
        raise InputError(f"format {format!r}: expected one of {', '.join(FORMATS)}")
    module, _, name = FORMATS[format].partition(":")
    read = getattr(import_module(f"occupancy.importers.{module}"), name)
    episodes: list[ImportedEpisode] = []
    for file in map(Path, files):
        if not file.is_file():
            raise DataError(f"{file}: no such file")
        with reading(file, then=f"expected a file of the format {format}"):
            episodes += read(file, settings or ImportSettings())
    return numbered(episodes)
