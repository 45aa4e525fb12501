"""A run whose episodes a harness drives: units begin as tasks are seen, and are committed when finished.

`play_unit`, the ledger, budgets and rows are those of `fewsteps collect`; what is new is that nobody knows
the tasks beforehand, and that a unit waits for a harness. Every turn is in the ledger, the student's too, so
that a server that was killed gives the same answers again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from agentloop.run.algorithm import play_unit
from agentloop.run.collect import key_of, metered, open_folder, refuse_budget, refuse_recipe
from agentloop.run.folder import never_began
from agentloop.run.types import Setup, Unit
from agentloop.run.units import Committer, Progress
from agentloop.serve.desk import CLOSED, OVER, SPENT, STOPPED, Desk, Harness, Seat
from agentloop.serve.journal import Journal
from agentloop.serve.settings import Serving
from agentloop.types import Answer, Ask, Policy, Task, traits_of
from occupancy.record.errors import BudgetStopped
from occupancy.record.rows import Key
from occupancy.runs import Run

END_S = 30.0
"""Seconds that models have for the turns that are open when the server ends."""
Answering = Callable[[Desk, asyncio.Event], AbstractAsyncContextManager[None]]
"""Answers the calls of a desk for as long as it is entered; it may set the event, to stop."""


async def serve(
    folder: str | Path,
    setup: Setup,
    serving: Serving,
    answer: Answering,
    *,
    progress: Progress = lambda done, total, rows: None,
) -> bool:
    """Serve a run until its tasks are done, it is closed, or it is stopped; whether nothing is left to do.

    Args:
        folder: The run folder, new or begun with the same settings.
        setup: What is collected, with which policies, within which budget; its environments are a `Harness`.
        serving: How.
        answer: Answers the harness's calls.
        progress: Called after every commit.

    Raises:
        BudgetStopped: The budget ended it: the folder is a valid run, and a larger budget resumes it.
        RunError: A disk or a server failed: the same call resumes the run once that is repaired.
    """
    settings = setup.settings
    refuse_recipe(settings, setup.environments)
    refuse_budget(setup, every_call=True)
    run = open_folder(folder, settings, setup.environments)
    with metered(run, setup, every_call=True) as paid, closing(Journal(run.folder)) as journal:
        noted = replace(paid, student=_Noted(paid.student), teacher=_Noted(paid.teacher))
        return await _Serving(run, noted, serving, journal, progress).until_done(answer)


class _Serving:
    def __init__(
        self, run: Run, setup: Setup, serving: Serving, journal: Journal, progress: Progress
    ) -> None:
        self._run, self._setup, self._serving = run, setup, serving
        self._harness = Harness(setup.environments.version, setup.environments.T_max)
        self._committer = Committer(run, done=0, total=0, progress=progress)
        self._desk = Desk(journal, self._begin, serving)
        self._playing: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._demos = setup.settings.demo_tasks if setup.settings.pilot else 0
        self._begun, self._orders = 0, count()
        self._episodes = set(run.column("episodes", "episode_id"))

    async def until_done(self, answer: Answering) -> bool:
        """Answer until there is nothing left to do, which is True, or until it is stopped."""
        self._desk.recover(self._is_done)
        flushed = asyncio.Event()
        often = asyncio.create_task(self._committer.flush_often(flushed))
        often.add_done_callback(self._flush_failed)
        done = False
        try:
            async with answer(self._desk, self._stop):
                try:
                    done = await self._until_stopped()
                finally:
                    self._desk.refuse = self._desk.refuse or (CLOSED if done else STOPPED)
                    await self._give_up()
        finally:
            flushed.set()
            with suppress(Exception):  # it is the failure already
                await often
            if self._failure is None or isinstance(self._failure, BudgetStopped):
                await self._committer.flush()
            self._committer.close()
        if self._failure is not None:
            raise self._failure
        return done

    async def _until_stopped(self) -> bool:
        while not self._stop.is_set() and not self._done():
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._stop.wait()
        return self._done()

    def _done(self) -> bool:
        closed = self._desk.refuse is not None or 0 < self._serving.tasks <= len(self._desk.tasks)
        return closed and not self._playing

    async def _give_up(self) -> None:
        """End what is in play, after the turns that are open: it goes on when the run is served again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                while self._failure is None and any(s.in_play for s in self._desk.sessions.values()):
                    await asyncio.sleep(0.02)
        while self._playing:
            for task in self._playing:
                task.cancel()
            await asyncio.wait(self._playing)

    def _is_done(self, unit: Key) -> bool:
        return unit.episode_id in self._episodes

    def _begin(self, task: Task, with_demo: bool) -> int:
        """Begin the units of a task that the run does not have yet; returns their number."""
        settings = self._setup.settings
        keys = [key_of(settings, task.task_id, i) for i in range(settings.n_of(task.task_id))]
        if with_demo or self._begun < self._demos:
            keys.append(Key("demo", task.task_id, continuation=0))
        self._begun += 1
        units = [Unit(key, task, next(self._orders)) for key in keys if not self._is_done(key)]
        for unit in units:
            playing = asyncio.create_task(self._play(unit))
            self._playing.add(playing)
            playing.add_done_callback(self._playing.discard)
        return len(units)

    async def _play(self, unit: Unit) -> None:
        seat, over = Seat(unit, self._desk), STOPPED
        try:
            rows = await play_unit(unit, replace(self._setup, environments=replace(self._harness, seat=seat)))
            over = OVER
            # What never began has no rows: it waits for another try.
            await self._committer.add({} if never_began(rows) else rows)
        except BudgetStopped as stop:
            self._failure, over = self._failure or stop, SPENT
            self._desk.refuse_further(SPENT)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._failure = error
            self._desk.refuse = STOPPED
            self._stop.set()
        finally:
            self._desk.unit_ended(unit, seat, over)

    def _flush_failed(self, often: asyncio.Task[None]) -> None:
        if not often.cancelled() and (error := often.exception()) is not None:
            self._failure = error
            self._stop.set()


class _Noted:
    """A policy whose turns' tokens are told to the harness too."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.traits = policy, traits_of(policy)

    async def __call__(self, ask: Ask) -> Answer:
        answer = await self._policy(ask)
        if isinstance(ask.env, Seat):
            ask.env.usages[answer.text] = answer.usage
        return answer
