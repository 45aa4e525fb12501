"""Which evaluations are compared: their names and folders, checked before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from occupancy.record.errors import InputError


def arms_of(given: Sequence[str]) -> dict[str, list[str]]:
    """Name of each arm -> its folders, of texts [NAME=]EVAL[,EVAL…]."""
    arms = dict[str, list[str]]()
    for text in given:
        name, folders = _arm(text)
        if name in arms:
            raise InputError(f"{name} is given twice: expected every evaluation once, or a NAME= for each")
        arms[name] = folders
    return arms


def check_arms(names: Collection[str], baseline: str | None) -> None:
    """InputError with fewer than two arms, or a baseline that is none of them."""
    if len(names) < 2:
        raise InputError(f"{len(names)} evaluation to compare: expected at least two different ones")
    if baseline is not None and baseline not in names:
        raise InputError(f"baseline {baseline!r}: expected one of {', '.join(names)}")


def _arm(text: str) -> tuple[str, list[str]]:
    """Name and folders. "=" and "," may be part of a folder's name (lr=1e-5): what exists decides."""
    named = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == "="]
    for name, folders in ((text, text), *named):
        for each in ([folders], folders.split(",")):
            if all(Path(folder).exists() for folder in each):
                return name, each
    name, folders = named[0] if named else (text, text)
    return name, folders.split(",")
