"""A task of inspect_ai as its users write them: its own agent, a tool and a scorer."""

from __future__ import annotations

from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import basic_agent
from inspect_ai.tool import tool


@tool
def add() -> Any:
    async def execute(x: int, y: int) -> str:
        """Add two numbers.

        Args:
            x: First number.
            y: Second number.
        """
        return str(x + y)

    return execute


@task
def sums() -> Task:
    samples = [
        Sample(id=f"s{i}", input=f"What is {i} + {i + 1} + 10?", target=str(2 * i + 11)) for i in range(4)
    ]
    agent = basic_agent(tools=[add()], max_attempts=1, message_limit=20)
    return Task(dataset=samples, solver=agent, scorer=match(numeric=True))
