"""Environments with Gymnasium's reset and step as a benchmark: `--env gym:package.module:function`.

The function makes one environment, whose observations are texts (or become JSON). A task is a seed for
`reset`. An action is the turn's text, or, where `action_space` has a number `n` of actions, the last number
in it. Nothing of Gymnasium is imported, so that whatever steps like it will do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from agentloop.environments.seeds import Scale, SeedEpisode, SeedTasks, Which, shown
from agentloop.run.episode import boundary
from agentloop.types import Environment, EnvironmentFailed, Reply
from occupancy.record.finish import after_reasoning
from occupancy.record.specs import Count, Few

_NUMBER = re.compile(r"-?\d+")


class TextGym(SeedEpisode):
    """One task in an environment of its own, whose calls run one after another in `thread`."""

    def __init__(self, gym: Any, thread: Executor, seed: int, scale: Scale, system: str) -> None:
        space = getattr(gym, "action_space", None)
        n, start = getattr(space, "n", None), getattr(space, "start", 0)
        self._gym, self._thread = gym, thread
        self._actions = None if n is None else range(int(start), int(start) + int(n))
        super().__init__(seed, scale, system or self._how())

    async def reset(self, seed: int) -> Reply:
        """Begin the task anew; its seed is the task's own, and not the episode's."""
        self._rewards = []
        observation, _ = await _in(self._thread, partial(self._gym.reset, seed=self._seed))
        return Reply(shown(observation))

    async def step(self, text: str) -> Reply:
        """Play one turn; a turn that names no action is answered by what an action is."""
        said = after_reasoning(text)
        action: Any = said.strip()
        if self._actions is not None:
            numbers = _NUMBER.findall(said)
            action = int(numbers[-1][:9]) if numbers else -1
            if action not in self._actions:
                return Reply(self._how(), parse_status="no_action")
        observation, reward, over, cut, _ = await _in(self._thread, partial(self._gym.step, action))
        return self._stepped(observation, float(reward), bool(over or cut))

    def _how(self) -> str:
        if self._actions is None:
            return "Answer each message with your next action alone."
        first, last = self._actions[0], self._actions[-1]
        return f"Answer each message with the number of your action, {first} to {last}."


class TextGyms(SeedTasks):
    """What `package.module:function` makes, one for each open task; `Scale` says what the rewards mean."""

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

        super().__init__(workers, T_max, Scale(reward, reward_at_0, reward_at_1))
        self._make, self._system = named(name), system
        self.name, self.version = f"gym {name}", f"gym:{name} {self.scale.told(system)}"

    @asynccontextmanager
    async def opened(self, seed: int) -> AsyncIterator[Environment]:
        """An environment of its own for one task, in a thread of its own."""
        thread = ThreadPoolExecutor(1)
        try:
            with boundary(EnvironmentFailed, self.name):
                gym = await _in(thread, self._make)
            try:
                yield TextGym(gym, thread, seed, self.scale, self._system)
            finally:
                with boundary(EnvironmentFailed, f"closing {self.name}"):
                    await _in(thread, getattr(gym, "close", lambda: None))
        finally:
            thread.shutdown(wait=False)


async def _in(thread: Executor, call: Callable[[], Any]) -> Any:
    """What a call in the thread returns; it waits for one before it whose episode has been given up."""
    return await asyncio.get_running_loop().run_in_executor(thread, call)
