"""Environments with Gymnasium's reset and step as a benchmark: `--env gym:package.module:function`.

The function makes one environment, whose observations are texts (or become JSON). A task is a seed for
`reset`. An action is the turn's text, or, where `action_space` has a number `n` of actions, the last number
in it. Nothing of Gymnasium is imported, so that whatever steps like it will do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agentloop.environments.seeds import Scale, Which, seed_of_task, seed_tasks, shown
from agentloop.run.episode import boundary
from agentloop.types import Environment, EnvironmentFailed, Message, Policy, Replay, Reply, Task
from occupancy.record.specs import Count, Few

_NUMBER = re.compile(r"-?\d+")


class TextGym:
    """One task in an environment of its own; its steps run in a thread."""

    def __init__(self, gym: Any, seed: int, scale: Scale, system: str) -> None:
        self._gym, self._seed, self._scale, self._system = gym, seed, scale, system
        space = getattr(gym, "action_space", None)
        n, start = getattr(space, "n", None), int(getattr(space, "start", 0))
        self._actions = None if n is None else range(start, start + int(n))
        self._rewards: list[float] = []

    async def reset(self, seed: int) -> Reply:
        """Begin the task anew; its seed is the task's own, and not the episode's."""
        self._rewards = []
        observation, _ = await asyncio.to_thread(self._gym.reset, seed=self._seed)
        return Reply(shown(observation))

    async def step(self, text: str) -> Reply:
        """Play one turn; a turn that names no action is answered by what an action is."""
        action: Any = text.strip()
        if self._actions is not None:
            numbers = _NUMBER.findall(text)
            action = int(numbers[-1][:9]) if numbers else -1
            if action not in self._actions:
                return Reply(self._how(), parse_status="no_action")
        observation, reward, over, cut, _ = await asyncio.to_thread(self._gym.step, action)
        self._rewards.append(float(reward))
        done = bool(over or cut)
        return Reply(shown(observation), done, self._scale.R(self._rewards) if done else None)

    def prompt(self, first: Reply) -> Sequence[Message]:
        """How to act, and the first observation."""
        system = Message("system", self._system or self._how(), "task")
        return (system, Message("user", first.observation, "environment"))

    async def ask(self, question: str, **arguments: Any) -> Any:
        """Gymnasium has no experts."""
        raise EnvironmentFailed(f"a scripted policy asked {question!r}, which no environment of gym: answers")

    def _how(self) -> str:
        if self._actions is None:
            return "Answer each message with your next action alone."
        return (
            f"Answer each message with the number of your action, {self._actions[0]} to {self._actions[-1]}."
        )


class TextGyms:
    """What `package.module:function` makes, one for each open task; `Scale` says what the rewards mean."""

    replay = Replay.CHECKED
    policies: Sequence[str] = ()

    def __init__(
        self,
        name: str,
        *,
        workers: Few = 2,
        T_max: Count = 50,
        reward: Which = "last",
        reward_at_0: float = 0.0,
        reward_at_1: float = 1.0,
        system: str = "",
    ) -> None:
        from agentloop.policies.by_name import named

        self._make, self._system = named(name), system
        self._scale = Scale(reward, reward_at_0, reward_at_1)
        self.name, self.version = f"gym {name}", f"gym:{name} reward={reward}"
        self.T_max, self.capacity = T_max, workers
        self._free = asyncio.Semaphore(workers)

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Seeds: see `seed_tasks`."""
        return seed_tasks(spec)

    def policy(self, spec: str) -> Policy | None:
        """None: environments bring no policies."""
        return None

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        """An environment of its own for each task."""
        async with self._free:
            with boundary(EnvironmentFailed, self.name):
                gym = await asyncio.to_thread(self._make)
            try:
                yield TextGym(gym, seed_of_task(task), self._scale, self._system)
            finally:
                with boundary(EnvironmentFailed, f"closing {self.name}"):
                    await asyncio.to_thread(getattr(gym, "close", lambda: None))

    async def close(self) -> None:
        """Nothing to close: each task has closed its own."""
