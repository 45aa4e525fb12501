"""Benchmarks whose tasks are seeds and whose steps have rewards: what OpenEnv and Gymnasium share."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agentloop.environments.task_specs import parse_spec, read_ids
from agentloop.types import Environment, EnvironmentFailed, Message, Policy, Replay, Reply, Task
from occupancy.record.errors import InputError
from occupancy.record.specs import check

Which = Literal["last", "sum", "max"]
DIGITS = 6
"""Of R; what follows them is rounding."""
MOST = 1_000_000
"""Tasks that a spec may name."""


def shown(observation: Any) -> str:
    """An observation as text: its one text, or JSON."""
    if isinstance(observation, dict) and len(observation) == 1:
        (only,) = observation.values()
        if isinstance(only, str):
            return only
    if isinstance(observation, str):
        return observation
    return json.dumps(observation, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays as lists, other things as their texts."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


@dataclass(frozen=True)
class Scale:
    """An episode's R from its steps' rewards."""

    reward: Which = "last"
    """What of the steps' rewards counts."""
    reward_at_0: float = 0.0
    """The reward that is R = 0."""
    reward_at_1: float = 1.0
    """The reward that is R = 1."""

    def __post_init__(self) -> None:
        check(self, of="rewards")
        if self.reward_at_0 == self.reward_at_1:
            raise InputError(f"reward_at_0=reward_at_1={self.reward_at_0:g}: expected two rewards")

    def told(self, system: str) -> str:
        """Part of a benchmark's version: what its scores mean, and a system message of the user's own."""
        told = f"reward={self.reward}"
        if (self.reward_at_0, self.reward_at_1) != (0, 1):
            told += f" {self.reward_at_0:g}..{self.reward_at_1:g}"
        return f"{told} system={blake2b(system.encode(), digest_size=4).hexdigest()}" if system else told

    def R(self, rewards: Sequence[float]) -> float:
        """R of an episode that is over; EnvironmentFailed where no step had a reward."""
        if not rewards:
            raise EnvironmentFailed("the episode is done and no step has had a reward")
        chosen = {"last": rewards[-1], "sum": sum(rewards), "max": max(rewards)}[self.reward]
        # Ten rewards of .1 sum to .9999999999999999, and one in float32 is .10000000149.
        return round((chosen - self.reward_at_0) / (self.reward_at_1 - self.reward_at_0), DIGITS)


class SeedEpisode:
    """One task: a kind of environment adds `reset` and `step`."""

    def __init__(self, seed: int, scale: Scale, system: str) -> None:
        self._seed, self._scale, self._system = seed, scale, system
        self._rewards: list[float] = []

    def prompt(self, first: Reply) -> Sequence[Message]:
        """How to act, and the first observation."""
        return (Message("system", self._system, "task"), Message("user", first.observation, "environment"))

    async def ask(self, question: str, **arguments: Any) -> Any:
        """No such environment answers a scripted policy."""
        raise EnvironmentFailed(f"a scripted policy asked {question!r}: no environment of seeds answers that")

    def _stepped(self, observation: Any, reward: float | None, done: bool, role: str = "user") -> Reply:
        if reward is not None:
            self._rewards.append(float(reward))
        return Reply(shown(observation), done, self._scale.R(self._rewards) if done else None, role=role)


class SeedTasks:
    """The benchmark: a kind of it adds `name`, `version` and `opened`."""

    replay, policies = Replay.CHECKED, ()

    def __init__(self, workers: int, T_max: int, scale: Scale) -> None:
        self.capacity, self.T_max, self.scale = workers, T_max, scale
        self._free = asyncio.Semaphore(workers)

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Seeds 0 to N - 1 for `seeds:N`, A to B - 1 for `seeds:A-B`; a file has one `seeds/N` a line."""
        if spec.startswith("@"):
            return [_task(task_id) for task_id in read_ids(Path(spec[1:]))]
        part = parse_spec(spec, splits=("seeds",))
        if part.stop is None or part.stop - part.start > MOST:
            raise InputError(f"--tasks {spec}: expected seeds:N or seeds:A-B of at most {MOST:,} seeds")
        return [_task(f"seeds/{n}") for n in range(part.start, part.stop)]

    def policy(self, spec: str) -> Policy | None:
        """None: such benchmarks bring no policies."""
        return None

    def opened(self, seed: int) -> AbstractAsyncContextManager[Environment]:
        """An environment of its own for one task."""
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        """One task; waits while `capacity` are open."""
        async with self._free, self.opened(int(task.task_id.removeprefix("seeds/"))) as environment:
            yield environment

    async def close(self) -> None:
        """Nothing to close: each task has closed its own."""


def _task(task_id: str) -> Task:
    if not re.fullmatch(r"seeds/(0|[1-9]\d{0,17})", task_id, re.ASCII):
        raise InputError(f"task id {task_id!r}: expected seeds/N with a whole number N")
    return Task(task_id, task_id, "seeds")
