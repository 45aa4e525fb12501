"""The pilot's environment, opened as it was then, and the tasks of its splits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentloop.policies.by_name import open_environments
from agentloop.run.collect import tasks_of


def environment_of(info: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """What `--env` named when a run was collected, or its version's first word; and its `--env-set`."""
    made: Mapping[str, Any] = info.get("made_with", {})
    name = made.get("env") or str(info.get("environment", "")).partition(" ")[0]
    return str(name), dict(made.get("env_set", {}))


def task_ids(environment: str, env_set: Mapping[str, Any], split: str) -> list[str]:
    """Task ids of a split, as the environment has them.

    Raises InputError where the environment is none that fewsteps knows, or its data are missing.
    """

    async def ids() -> list[str]:
        environments = open_environments(environment, **env_set)
        try:
            return [task.task_id for task in tasks_of(environments, split, seed=0)]
        finally:
            close = getattr(environments, "close", None)
            if close is not None:
                await close()

    return asyncio.run(ids())
