"""Scripted students as text: `scripted:NAME=VALUE,…` gives a benchmark's own settings record."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from occupancy.record.errors import InputError

NAME = "scripted"
Settings = TypeVar("Settings")


def settings_from(text: str, record: type[Settings]) -> Settings:
    """The dataclass `record` with what `text` changes; InputError for an unknown name or a wrong value."""
    name, _, rest = text.partition(":")
    types = {field.name: int if field.type in ("int", int) else float for field in fields(record)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if name != NAME or key not in types:
            raise InputError(
                f"student {text!r}: {key!r} is unknown; expected {NAME}:KEY=VALUE with {', '.join(types)}"
            )
        if key in given:
            raise InputError(f"student {text!r}: {key} is given twice")
        try:
            given[key] = types[key](value)
        except ValueError:
            raise InputError(f"student {text!r}: {key}={value!r} is no {types[key].__name__}") from None
    return record(**given)
