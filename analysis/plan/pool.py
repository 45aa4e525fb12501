"""The tasks that an environment's split holds: what a budget can be spread over."""

from __future__ import annotations

import asyncio

from agentloop.policies.by_name import open_environments
from agentloop.run.collect import tasks_of


def task_ids(environment: str, split: str) -> list[str]:
    """Task ids of a split, as the environment has them; environment: its name, a version may follow.

    Raises InputError where the environment is none that fewsteps knows, or its data are missing.
    """

    async def ids() -> list[str]:
        environments = open_environments(environment.split(maxsplit=1)[0])
        try:
            return [task.task_id for task in tasks_of(environments, split, seed=0)]
        finally:
            close = getattr(environments, "close", None)
            if close is not None:
                await close()

    return asyncio.run(ids())
