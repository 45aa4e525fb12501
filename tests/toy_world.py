"""A text world small enough for tests: walk a corridor to its end; a wrong turn leads into a ditch.

`forward` advances on the path; anything else puts the walker into a ditch, from which `climb` leads
back. The goal is `length` steps away. The student errs by its seed, the teacher never does.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Container, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from agentloop.types import Answer, Ask, Environment, Message, Policy, Replay, Reply, Task, Traits, Usage
from occupancy.record.errors import InputError


class Corridor:
    def __init__(self, length: int, *, fails_at: int = 0) -> None:
        self.length, self.fails_at = length, fails_at

    async def reset(self, seed: int) -> Reply:
        self.place, self.ditch, self.t = 0, False, 0
        return Reply(f"You stand at 0 of {self.length}.")

    async def step(self, text: str) -> Reply:
        from agentloop.types import EnvironmentFailed

        self.t += 1
        if self.t == self.fails_at:
            raise EnvironmentFailed("the corridor\nfell down")
        if self.ditch:
            self.ditch = text != "climb"
        elif text == "forward":
            self.place += 1
        else:
            self.ditch = True
        done = self.place == self.length
        where = "in a ditch at" if self.ditch else "at"
        state = 2 * self.place + self.ditch
        return Reply(
            f"You are {where} {self.place} of {self.length}.", done, 1.0 if done else None, state_id=state
        )

    def prompt(self, first: Reply) -> Sequence[Message]:
        return (
            Message("system", "Reach the end.", "task"),
            Message("user", first.observation, "environment"),
        )

    async def ask(self, question: str, **arguments: Any) -> Any:
        return "climb" if self.ditch else "forward"


class Corridors:
    name, version, replay, T_max, policies = "toy", "toy 1", Replay.CHECKED, 12, ("expert", "drunk")

    def __init__(self, *, workers: int = 2, fails_at: int = 0) -> None:
        self.capacity, self.fails_at, self.opened, self.closed = workers, fails_at, 0, False

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        if not spec.isdigit():
            raise InputError(f"--tasks {spec}: expected a number of corridors")
        return [Task(f"corridor/{i}", f"corridor/{i}", "train", "walk") for i in range(int(spec))]

    def policy(self, spec: str) -> Policy | None:
        return {"expert": expert, "drunk": drunk}.get(spec)

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        self.opened += 1
        corridor = Corridor(2 + int(task.task_id.split("/")[1]) % 5, fails_at=self.fails_at)
        self.change(corridor)
        yield corridor

    def change(self, corridor: Any) -> None:
        """What a subclass has otherwise in each of its corridors."""

    async def close(self) -> None:
        self.closed = True


async def expert(ask: Ask) -> Answer:
    text = await ask.env.ask("expert")
    # The price of a turn depends on the turn, so that a wrong account cannot add up by luck.
    return Answer(text, Usage(output=10 + ask.t, counter="toy", prompt=100 * ask.t, cached=0))


async def drunk(ask: Ask) -> Answer:
    right = await ask.env.ask("expert")
    text = right if random.Random(ask.seed).random() < 0.6 else "stumble"
    return Answer(text, Usage(output=3, counter="toy"))


def raising(policy: Policy, error: type[BaseException] | BaseException, *, at: Container[int]) -> Any:
    """The policy, of whose calls those with the numbers `at`, from 1 on, raise an error."""
    numbers = count(1)

    async def call(ask: Ask) -> Answer:
        if next(numbers) in at:
            raise error
        return await policy(ask)

    return call


class Bounded:
    """A policy that says that no turn of it has more than `most` tokens."""

    most = 30
    traits = Traits(most_output=most)

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def __call__(self, ask: Ask) -> Answer:
        return await self._policy(ask)


def open_corridors(*, workers: int = 2) -> Corridors:
    return Corridors(workers=workers)
