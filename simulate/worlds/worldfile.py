"""Worlds by name or from TOML.

A file holds either a family, from which a seed draws a world,

    name = "mine"
    kind = "recovery"
    [knobs]
    repairs = 3
    [ranges]
    tracks = [10, 20]

or one explicit world:

    name = "two turns"
    horizon = 5
    start = [1.0, 0.0]
    contexts = [0, 1]
    tokens = [100, 80]
    teacher = [[1.0, 0.0], [1.0, 0.0]]
    student = [[0.6, 0.4], [0.3, 0.7]]
    transitions = [[0, 0, "success", 1.0], [0, 1, 1, 1.0], [1, 0, 0, 1.0], [1, 1, "failure", 1.0]]

where a transition is [state, action, following state, chance] and `features` [X, D] may be given.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from occupancy.record.reading import read_toml, reading
from simulate.worlds.families import FAMILIES, Family
from simulate.worlds.types import World, WorldError

_EXPLICIT = ("horizon", "start", "contexts", "tokens", "teacher", "student", "transitions")


def load_world(spec: str) -> World:
    """A world by name ("short", "short/7" for number 7 of a family) or from a TOML file."""
    path = Path(spec)
    if path.suffix == ".toml" and path.is_file():
        found = read_world_file(path)
        return found if isinstance(found, World) else found.draw(0)
    name, _, number = spec.partition("/")
    if name not in FAMILIES or not (number == "" or (number.isascii() and number.isdigit())):
        raise WorldError(
            f"world {spec!r}: expected a family ({', '.join(FAMILIES)}), one of its worlds such as short/7, "
            f"or a TOML file that exists"
        )
    return FAMILIES[name].draw(int(number or 0))


def read_world_file(path: str | Path) -> World | Family:
    """The explicit world of a TOML file, or its family."""
    path = Path(path)
    table = read_toml(path, error=WorldError)
    with reading(path, then="see docs/worlds.md", error=WorldError):
        try:
            return (_explicit if "transitions" in table else _family)({"name": path.stem} | table)
        except WorldError as error:
            raise WorldError(f"{path}: {error}; see docs/worlds.md") from error


def _family(table: Mapping[str, Any]) -> Family:
    if unknown := sorted(set(table) - {"name", "kind", "knobs", "ranges"}):
        raise WorldError(
            f"unknown key {unknown[0]!r}: a family has name, kind, knobs and ranges; an explicit world has "
            f"{', '.join(_EXPLICIT)}"
        )
    return Family(**{**table, "name": str(table["name"])})


def _explicit(table: Mapping[str, Any]) -> World:
    unknown = sorted(set(table) - {*_EXPLICIT, "name", "features"})
    missing = sorted(set(_EXPLICIT) - set(table))
    if unknown or missing:
        raise WorldError(f"missing keys {missing}, unknown keys {unknown}")
    start, teacher, student = (_array(table, name) for name in ("start", "teacher", "student"))
    shapes = (start.ndim, teacher.ndim, student.ndim)
    if shapes != (1, 2, 2) or not isinstance(table["transitions"], list):
        raise WorldError(
            "expected start as one list of numbers, teacher and student as lists of them, and a list of "
            "transitions"
        )
    S, A = len(start), teacher.shape[1]
    ends = {"success": S, "failure": S + 1}
    rows: dict[int, dict[int, np.ndarray[Any, Any]]] = {s: {} for s in range(S)}
    for number, row in enumerate(table["transitions"]):
        if not isinstance(row, list) or len(row) != 4:
            raise WorldError(f"transition {number} is {row}: expected [state, action, following, chance]")
        s, a, following, chance = row
        to: Any = ends.get(following, following) if isinstance(following, str) else following
        if (
            not all(isinstance(i, int) for i in (s, a, to))
            or not (0 <= s < S and 0 <= a < A and 0 <= to < S + 2)
            or not isinstance(chance, int | float)
        ):
            raise WorldError(
                f"transition {number} is {row}: expected a state below {S}, an action below {A}, a "
                f"following state or 'success' or 'failure', and a probability"
            )
        rows[s].setdefault(to, np.zeros(A))[a] += chance
    U = max(1, *(len(row) for row in rows.values()))
    successors, chances = np.full((S, U), S + 1, np.int32), np.zeros((S, A, U))
    for s, row in rows.items():
        for u, (to, column) in enumerate(row.items()):
            successors[s, u], chances[s, :, u] = to, column
    features = _array(table, "features") if "features" in table else np.eye(len(student))
    return World(
        name=str(table["name"]),
        start=start,
        successors=successors,
        chances=chances,
        teacher=teacher,
        base=student,
        contexts=_array(table, "contexts"),
        features=features,
        tokens=_array(table, "tokens"),
        horizon=table["horizon"],
    )


def _array(table: Mapping[str, Any], name: str) -> np.ndarray[Any, Any]:
    try:
        return np.array(table[name], np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise WorldError(f"{name} is no array of numbers ({error})") from error
