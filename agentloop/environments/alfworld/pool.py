"""ALFWorld as an `Environments`: a bounded pool of worker processes.

The games are not thread-safe, so each open task has a process of its own. Processes are started when first
needed, kept, and replaced when one dies, hangs or has loaded many games.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agentloop.policies import scripted
from agentloop.types import EnvironmentFailed, Message, Policy, Replay, Reply, Task
from occupancy.record.specs import Few, Positive, checked

from . import grammars, student
from .expert import scripted_expert
from .games import Catalogue, Game
from .sources import find_source
from .worker import Worker

T_MAX = 50
LOADS_PER_WORKER = 1000


class AlfworldGame:
    """One open task; an `Environment`."""

    def __init__(self, worker: Worker, *, renew: Callable[[], Awaitable[Worker]], grammar: str) -> None:
        self.worker, self._renew, self._grammar = worker, renew, grammar

    async def reset(self, seed: int) -> Reply:
        """Start an episode, in a new process if the last one died.

        A game has nothing random in it, so every seed gives the same episode.
        """
        if not self.worker.alive:
            self.worker = await self._renew()
        reply: Reply = await self.worker.call("reset", seed)
        return reply

    async def step(self, text: str) -> Reply:
        """Play the command in a turn's raw text."""
        reply: Reply = await self.worker.call("step", text)
        return reply

    def prompt(self, first: Reply) -> Sequence[Message]:
        """The rules, then the room and the task."""
        rules = grammars.SYSTEM.format(put=grammars.PLACING[self._grammar])
        return (Message("system", rules, "task"), Message("user", first.observation, "environment"))

    async def ask(self, question: str, **arguments: Any) -> Any:
        """`expert`: the scripted expert's command, or PolicyFailed. `admissible`: what does something now."""
        scripted.check_question(question, arguments, "expert", "admissible")
        return await self.worker.call("ask", question)


class Alfworld:
    """The benchmark; an `Environments`."""

    name = "alfworld"
    replay = Replay.CHECKED
    T_max = T_MAX
    policies = ("expert", scripted.NAME)

    def __init__(self, catalogue: Catalogue, *, grammar: str, workers: int, timeout_s: float) -> None:
        self.version = grammars.version(grammar)
        self.capacity = workers
        self._catalogue, self._grammar, self._timeout_s = catalogue, grammar, timeout_s
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._free = asyncio.Semaphore(workers)
        self._closed = False
        weakref.finalize(self, _end, self._all)

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """Tasks named by `spec`; see `games`."""
        return self._catalogue.tasks(spec, seed=seed)

    def policy(self, spec: str) -> Policy | None:
        """`expert`, or `scripted` with settings as in `scripted:lapse=0.1`; None for any other name."""
        teachers = {"expert": scripted_expert}
        return scripted.own_policy(spec, teachers, student.StudentSettings, student.scripted_student)

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[AlfworldGame]:
        """Lease one worker with the game loaded; EnvironmentFailed when it cannot be loaded."""
        game = self._catalogue.game(task.task_id)
        async with self._free:

            async def renewed() -> Worker:
                self._drop(opened.worker)
                return await self._loaded(game)

            opened = AlfworldGame(await self._loaded(game), renew=renewed, grammar=self._grammar)
            try:
                yield opened
            finally:
                self._give_back(opened.worker)

    async def close(self) -> None:
        """End every worker; open games fail at their next call."""
        self._closed = True
        self._idle.clear()
        _end(self._all)

    async def _loaded(self, game: Game) -> Worker:
        """A worker that holds the game; old ones that died are replaced, and a new one has two chances."""
        failed = 0
        while True:
            worker = self._take(game.game_id)
            failed += worker.loads == 0
            try:
                await worker.load(game)
            except BaseException as error:
                self._drop(worker)
                if failed == 2 or not isinstance(error, EnvironmentFailed):
                    raise
            else:
                return worker

    def _take(self, game_id: str) -> Worker:
        """An idle worker that still holds the game, else the one that was idle longest, else a new one."""
        if self._closed:
            raise EnvironmentFailed("the pool is closed: no game can be opened in it")
        if self._idle:
            worker = next((w for w in self._idle if game_id in w.recent), self._idle[0])
            self._idle.remove(worker)
            return worker
        worker = Worker(timeout_s=self._timeout_s)
        self._all.add(worker)
        return worker

    def _give_back(self, worker: Worker) -> None:
        if worker.alive and worker.loads < LOADS_PER_WORKER:
            self._idle.append(worker)
        else:
            self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        worker.kill()
        self._all.discard(worker)


@checked
def open_alfworld(
    *, grammar: grammars.Grammar = "2.1.1", workers: Few = 2, timeout_s: Positive = 120.0
) -> Alfworld:
    """The benchmark in the folder that FEWSTEPS_DATA names; its processes start when tasks are opened.

    grammar    2.1.1 (`put`) or 2.1.2 (`move`), see `grammars`
    workers    processes, so tasks that are open at once; each needs up to 400 MB
    timeout_s  seconds for one call, loading a game included, before its worker is ended
    """
    catalogue = Catalogue(find_source(), grammar=grammar)
    return Alfworld(catalogue, grammar=grammar, workers=workers, timeout_s=timeout_s)


def _end(workers: set[Worker]) -> None:
    while workers:
        workers.pop().kill()
