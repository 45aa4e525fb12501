"""The toy world's corridors with splits, files of tasks, and a setting that must be given."""

from __future__ import annotations

from collections.abc import Sequence

from toy_world import Corridors

from agentloop.environments.task_specs import named_ids
from agentloop.types import Task

SPLITS = {"train": 400, "valid": 40}


class Streets(Corridors):
    version, T_max = "streets 1", 5

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        every = {split: [f"{split}/{i}" for i in range(n)] for split, n in SPLITS.items()}
        ids = named_ids(spec, lambda part: every[part.split], splits=tuple(SPLITS), seed=seed)
        return [Task(one, one, one.partition("/")[0], "walk") for one in ids]


def open_streets(town: str, *, workers: int = 8) -> Streets:
    """`town` has no default: who forgets `--env-set town=...` gets an error."""
    return Streets(workers=workers)
