"""Recorded conversations of other tools as rows of `episodes`, `turns` and `traces`; one module a format.

docs/import.md says what each format is. The author of every turn is taken from the file or from the settings,
never guessed. A file is refused as a whole, with the line and the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy.record.errors import DataError, InputError

if TYPE_CHECKING:
    from occupancy.importers.episodes import ImportedEpisode, ImportSettings

FORMATS = {
    "alpaca": "training_data.lines:read_alpaca",
    "atif": "results.atif:read",
    "chat": "training_data.lines:read_chat",
    "claude-code": "agent_logs.claude_code:read",
    "codex": "agent_logs.codex:read",
    "inspect": "results.inspect_log:read",
    "mini-swe-agent": "agent_logs.mini_swe_agent:read",
    "openhands": "agent_logs.openhands:read",
    "sharegpt": "training_data.lines:read_sharegpt",
    "swe-agent": "agent_logs.swe_agent:read",
    "tau-bench": "results.tau_bench:read",
    "trl": "training_data.parquet:read_trl",
    "verifiers": "results.verifiers:read",
    "verl": "training_data.parquet:read_verl",
    "verl-rollouts": "training_data.verl_rollouts:read",
}
"""Module and function of each."""


def formats_of(files: Iterable[str | Path], format: str = "auto") -> dict[str, str]:
    """The format of each file: the one given, or with `auto` the one seen in its first record."""
    if format != "auto" and format not in FORMATS:
        raise InputError(f"format {format!r}: expected auto or one of {', '.join(FORMATS)}")
    from occupancy.importers.guess import format_of
    from occupancy.record.reading import reading

    found = {}
    for file in map(Path, files):
        if not file.is_file():
            what = "is a folder, device or pipe: expected a file" if file.exists() else "no such file"
            raise DataError(f"{file}: {what}")
        with reading(file, then="give --format"):
            found[str(file)] = format_of(file) if format == "auto" else format
    return found


def read_episodes(formats: Mapping[str, str], *, settings: ImportSettings) -> Iterator[ImportedEpisode]:
    """Episodes of files with the formats from `formats_of`; DataError with file, line and reason.

    InputError at the end where the settings name the author of a model that no turn names.
    """
    from occupancy.record.reading import reading

    folders = [os.path.dirname(os.path.abspath(file)) for file in formats]
    settings = replace(settings, within=os.path.commonpath(folders))
    for file, name in formats.items():
        module, _, function = FORMATS[name].partition(":")
        read = getattr(import_module(f"occupancy.importers.{module}"), function)
        with reading(file, then=f"expected a file of the format {name}"):
            yield from read(Path(file), settings)
    if unseen := sorted(set(settings.models) - settings.seen):
        named = ", ".join(sorted(filter(None, settings.seen))) or "none"
        raise InputError(f"--author-of {unseen[0]}: no turn names this model, they name {named}; correct it")
