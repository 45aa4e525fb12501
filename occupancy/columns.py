"""Which column of a table of turns means what, and how free values become ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from occupancy.errors import DataError, InputError
from occupancy.types import Int64

MOST_STATES = 1 << 26


@dataclass(frozen=True)
class Columns:
    """Column names of a table with one row a turn, the rows of a trajectory together and in order."""

    trajectory: str = "trajectory"
    """Changes where a new trajectory begins: whole numbers or text."""
    state: str = "state"
    """State of the context before the turn: ids from 0 up, or text."""
    task: str = "task"
    """Cluster of the standard errors: whole numbers or text."""
    weight: str = ""
    """w_t(tau), empty for none."""
    features: tuple[str, ...] = ()
    """Numbers to average."""

    @classmethod
    def parse(cls, text: str, *, base: Columns | None = None) -> Columns:
        """Columns from 'trajectory=episode,state=cell,feature=reward,feature=tokens'."""
        chosen: dict[str, Any] = {} if base is None else {f.name: getattr(base, f.name) for f in fields(cls)}
        features: list[str] = []
        for item in filter(None, text.split(",")):
            name, equals, column = (part.strip() for part in item.partition("="))
            if not equals or not column or name not in ("trajectory", "state", "task", "weight", "feature"):
                raise InputError(
                    f"--columns {item!r}: expected NAME=COLUMN with NAME one of trajectory, state, task, "
                    f"weight, feature"
                )
            if name == "feature":
                features.append(column)
            else:
                chosen[name] = column
        if features:
            chosen["features"] = tuple(features)
        return cls(**chosen)

    @property
    def needed(self) -> list[str]:
        """Every column to read, once."""
        named = (self.trajectory, self.state, self.task, self.weight, *self.features)
        return list(dict.fromkeys(name for name in named if name))

    def require(self, present: Sequence[str], where: str) -> None:
        """Refuse a table without a needed column."""
        for name in self.needed:
            if name not in present:
                raise DataError(
                    f"{where} has no column {name!r}, only {', '.join(present)}: map names with "
                    f"--columns trajectory=..,state=..,task=.."
                )


class Names:
    """Ids in order of first appearance, for values that are no ids themselves."""

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}

    def number(self, codes: Int64, values: Sequence[Hashable]) -> Int64:
        """Ids of values[codes]."""
        ids = [self.ids.setdefault(value, len(self.ids)) for value in values]
        return np.array(ids, np.int64)[codes]

    @property
    def in_order(self) -> list[Hashable]:
        """Value of each id."""
        return list(self.ids)
