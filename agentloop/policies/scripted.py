"""Scripted students as text: `scripted:NAME=VALUE,…` gives a benchmark's own settings record."""

from __future__ import annotations

from typing import TypeVar

from occupancy.record.specs import read

NAME = "scripted"
Settings = TypeVar("Settings")


def settings_from(text: str, record: type[Settings]) -> Settings:
    """The dataclass `record` with what `text` changes; InputError for an unknown name or a wrong value."""
    return read(record, filter(None, text.partition(":")[2].split(",")), of=f"student {text!r}")
