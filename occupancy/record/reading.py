"""Files of users as plain objects: whatever makes one unreadable is one line that names the file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any

from occupancy.record.errors import DataError, FewstepsError

_UNREADABLE = (OSError, UnicodeError, json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError)
"""What parsers raise on bytes that are damaged or not what they claim to be; beside them pyarrow's errors."""

_DIGITS = "integer string conversion"
"""In the ValueError of a number with more digits than Python reads, which has no class of its own."""


@contextmanager
def reading(
    file: str | Path, *, then: str = "restore it", error: Callable[[str], FewstepsError] = DataError
) -> Iterator[None]:
    """Raise as `error`, in one line, what a damaged file makes a parser raise; errors of our own pass.

    `file` is the file, or what it is with its name, and `then` what the user is to do. Only errors of parsers
    are the file's: a value of the wrong type is for the reader to find, so that its own faults are seen.
    """
    try:
        yield
    except FewstepsError:
        raise
    except Exception as cause:
        foreign = type(cause).__module__.startswith("pyarrow") or _DIGITS in str(cause)
        if not isinstance(cause, _UNREADABLE) and not foreign:
            raise
        if isinstance(cause, FileNotFoundError):
            raise error(f"{file} cannot be read: there is no such file") from cause
        deep = isinstance(cause, RecursionError)
        told = "it is nested too deep" if deep else " ".join(f"{cause or type(cause).__name__}".split())
        raise error(f"{file} cannot be read ({told[:300]}): {then}") from cause


def read_toml(
    file: str | Path,
    *,
    what: str = "",
    then: str = "correct it",
    error: Callable[[str], FewstepsError] = DataError,
    parse_float: Callable[[str], Any] = float,
) -> dict[str, Any]:
    """The table in a TOML file, without dates; `what` it is and what to do `then` are for the message."""
    named = f"{what} {file}".strip()
    with reading(named, then=then, error=error):
        found = tomllib.loads(Path(file).read_text("utf-8-sig"), parse_float=parse_float)
    for value in _values(found):
        if isinstance(value, date | time):
            raise error(f"{named} has the date {value}: expected a number, or a text in quotes; {then}")
    return found


def _values(found: Any) -> Iterator[Any]:
    """Everything in a table that is no table or list itself."""
    if isinstance(found, dict | list):
        for part in found.values() if isinstance(found, dict) else found:
            yield from _values(part)
    else:
        yield found


def read_json(file: str | Path, *, then: str = "restore it") -> Any:
    """The value in a JSON file."""
    with reading(file, then=then):
        return json.loads(Path(file).read_text("utf-8"))


_KINDS = {
    "filters": lambda value: isinstance(value, dict),
    "messages": lambda value: (
        isinstance(value, list)
        and all(isinstance(m, dict) and {"role", "content", "author"} <= set(m) for m in value)
        and all(isinstance(m[name], str) for m in value for name in ("role", "content", "author"))
        and all(isinstance(m.get("train", False), bool) for m in value)
    ),
}
"""Tests of what the cells of a run hold: verdicts of filters by name, and lists of messages."""


def read_cell(text: str, kind: str, where: str) -> Any:
    """The value of a cell with JSON of a kind, `filters` or `messages`; DataError where it holds another."""
    with reading(f"a cell of {kind} of {where}"):
        value = json.loads(text)
    if not _KINDS[kind](value):
        raise DataError(f"a cell of {kind} of {where} holds another value ({text[:60]!r}): restore the run")
    return value
