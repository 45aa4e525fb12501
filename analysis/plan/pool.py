"""The tasks that a budget can be spread over: as stated, or those of the pilot's split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agentloop.run import collect
from analysis.plan.pilot import Pilot
from occupancy.record.errors import FewstepsError, InputError
from occupancy.runs import open_run


def with_pool(pilot: Pilot, pool: int) -> Pilot:
    """The pilot with a stated pool; InputError where it is smaller than the pilot."""
    if pool < len(pilot.clusters):
        raise InputError(
            f"a pool of {pool} tasks: the pilot alone has {len(pilot.clusters)}; give at least those"
        )
    return replace(pilot, pool=pool, pool_stated=True)


def split_pool(pilot: Pilot, folder: str | Path) -> int | None:
    """Tasks of the pilot's split; None where its environment cannot be opened here."""
    split = pilot.task_spec.partition(":")[0]
    if split[:1] in ("", "@"):
        return None
    try:
        ids = collect.task_ids(*collect.environment_of(open_run(folder).info), split)
    except FewstepsError:
        return None
    return max(len(ids), len(pilot.clusters))
