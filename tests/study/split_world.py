"""The toy world with splits: `train:3-9` names six corridors that no other part of `train` names."""

from __future__ import annotations

from collections.abc import Sequence

from toy_world import Corridors

from agentloop.environments.task_specs import Slice, parse_spec
from agentloop.types import Task


class Split(Corridors):
    """Corridors of train, held_out and test."""

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Corridors of a slice; their number decides their length."""
        part: Slice = parse_spec(spec, splits=["train", "held_out", "test"])
        names = [f"{part.split}/{i}" for i in range(part.start, part.stop or 1)]
        return [Task(name, name, part.split, "walk") for name in names]


def open_split(*, workers: int = 2) -> Split:
    """The world."""
    return Split(workers=workers)
