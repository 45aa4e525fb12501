"""Which part of Algorithm 1 an episode of the harness plays, and the environment that it is to the algorithm.

A task is known from its first messages (or its X-Task-ID). Its units are the recipe's: each waits for as many
episodes of the task as its rollout, continuation and hand-backs need, and gets them in the order in which the
harness begins them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from agentloop.run.types import Unit
from agentloop.serve.calls import Failed, HarnessCall, Refused
from agentloop.serve.journal import Journal, Recorded
from agentloop.serve.session import GivenTurn, Session
from agentloop.serve.settings import Serving
from agentloop.types import (
    Environment,
    EnvironmentFailed,
    Message,
    Policy,
    Replay,
    Reply,
    Status,
    Task,
    Usage,
)
from occupancy.record.errors import BudgetStopped
from occupancy.record.rows import Key

CLOSED = Refused(410, "closed", "the run is closed: it takes no further episode")
STOPPED = Refused(503, "stopped", "the server stops: repeat the call once it is back")
SPENT = Refused(
    402, "budget_spent", "the budget is spent: serve the run with a larger --budget, and repeat the call"
)
MOVED = Refused(503, "moved", "this episode goes on with one that was given up: repeat the call")
OVER = Refused(410, "over", "this episode is over")
NEEDLESS = Refused(410, "not_needed", "this task needs no further episode: see GET /status")
_NO_FURTHER = "the run was closed before the harness began a further episode of this task"


@dataclass(slots=True)
class KnownTask:
    """A task that the harness has shown, with the units and episodes that wait for each other."""

    task: Task
    active: int = 0
    """Units that are not finished."""
    waiting: list[Session] = field(default_factory=list)
    seats: list[tuple[Seat, asyncio.Future[Session]]] = field(default_factory=list)
    """Units that need an episode."""


Begin = Callable[[Task, bool], int]
"""Begins the units of a new task, with a demonstration if that was begun before; their number."""


class Desk:
    """The harness's episodes by key, and the tasks that they belong to."""

    def __init__(self, journal: Journal, begin: Begin, serving: Serving) -> None:
        self.journal, self._begin, self.serving = journal, begin, serving
        self.sessions: dict[str, Session] = {}
        self.tasks: dict[str, KnownTask] = {}
        self.ended: dict[str, Refused] = {}
        """What a call of an episode that has ended is told, by key."""
        self.refuse: Refused | None = None
        """What new episodes are told, where none is taken any more."""
        self._given_up: dict[str, list[Session]] = {}
        """Recorded episodes that no harness has gone on with, by task."""
        self._may_take_over = 0.0
        self._recorded: dict[tuple[str, int], Session] = {}
        """Recorded episodes by the unit and the part of it that they play."""

    def recover(self, done: Callable[[Key], bool]) -> None:
        """Take up what the journal says; `done`: whether the run folder has a unit."""
        recorded = self.journal.recorded()
        for episode in recorded:
            if done(episode.unit):
                self.ended |= dict.fromkeys((episode.key, *episode.also), OVER)
                continue
            again = Session(episode.key, episode.task_id, episode.first, replies=episode.replies)
            again.seated, again.also = True, list(episode.also)
            self._recorded[episode.unit.episode_id, episode.nth] = again
            self.sessions |= dict.fromkeys((episode.key, *episode.also), again)
            if not episode.ended:
                self._given_up.setdefault(episode.task_id, []).append(again)
        self._may_take_over = asyncio.get_running_loop().time() + self.serving.grace_s
        asyncio.get_running_loop().call_later(self.serving.grace_s, self._match_all)
        demos = {episode.task_id for episode in recorded if episode.unit.kind == "demo"}
        for task_id in dict.fromkeys(episode.task_id for episode in recorded):
            self._known(task_id, with_demo=task_id in demos)

    async def turn(self, key: str, task_id: str, call: HarnessCall, gone: Callable[[], bool]) -> GivenTurn:
        """The turn that answers a call; Refused where there is none."""
        answer: GivenTurn | Refused = MOVED
        while answer is MOVED:
            session = self.sessions.get(key) or self._new(key, task_id, call)
            if session.key == key:
                self._is_back(session)
            answer = await self._turn_of(session, call, gone)
        if isinstance(answer, Refused):
            raise answer.again()
        return answer

    async def _turn_of(
        self, session: Session, call: HarnessCall, gone: Callable[[], bool]
    ) -> GivenTurn | Refused:
        session.callers.append(gone)
        try:
            self._match(self.tasks[session.task_id])
            async with asyncio.timeout(self.serving.wait_s):
                await session.caught_up.wait()
                if session.over is MOVED:
                    return MOVED
                given = session.find(call)
                if isinstance(given, Reply):
                    self.journal.replied(session.key, given)
                    asked = session.hear(given)
                    if asked is None:
                        raise STOPPED.again()
                    given = asked
                return given if isinstance(given, GivenTurn) else await asyncio.shield(given)
        except TimeoutError:
            return Refused(503, "wait", f"no turn after {self.serving.wait_s:g} s: repeat the call")
        finally:
            session.callers.remove(gone)
            self._forget(session)

    def end_of(self, key: str, reply: Reply | Failed) -> bool:
        """Take an episode's reward, or that it failed; False where nothing waits for it any more."""
        session = self.sessions.get(key)
        if session is None or session.over is not None:
            if key in self.ended or session is not None:
                return False
            raise Refused(404, "unknown_episode", f"episode {key[:80]!r} is not known: it has made no call")
        if not session.caught_up.is_set():
            raise STOPPED.again()
        if session in self.tasks[session.task_id].waiting:
            self.end(session, NEEDLESS)
            return False
        self._is_back(session)
        self.journal.replied(session.key, reply)
        session.hear(reply)
        return True

    def status(self) -> dict[str, Any]:
        """Counts, and the tasks that need further episodes."""
        needed = {name: len(known.seats) for name, known in self.tasks.items() if known.seats}
        return {
            "tasks": len(self.tasks),
            "open_episodes": len(self.sessions),
            "ended_episodes": len(self.ended),
            "units_in_play": sum(known.active for known in self.tasks.values()),
            "needed_episodes": sum(needed.values()),
            "needed": needed,
            "refuses": None if self.refuse is None else self.refuse.code,
        }

    def unit_ended(self, unit: Unit, seat: Seat, over: Refused) -> None:
        """A unit is finished or given up: what waited for it alone is told."""
        seat.end(over)
        for place in [place for place in self._recorded if place[0] == unit.key.episode_id]:
            self.end(self._recorded.pop(place), over)
        known = self.tasks[unit.task.task_id]
        known.active -= 1
        if known.active == 0:
            for session in list(known.waiting):
                self.end(session, self.refuse or NEEDLESS)

    def refuse_further(self, refuse: Refused) -> None:
        """Take no further episode: units that wait for one end without it, or after SPENT are given up."""
        self.refuse = refuse
        for known in self.tasks.values():
            for session in list(known.waiting):
                self.end(session, refuse)
            while known.seats:
                _, future = known.seats.pop(0)
                if refuse is SPENT:
                    future.cancel()
                elif not future.done():
                    future.set_exception(EnvironmentFailed(_NO_FURTHER))

    def end(self, session: Session, over: Refused) -> None:
        """End an episode of the harness, and forget all but that it was."""
        session.end(over)
        self._is_back(session)
        if session in (waiting := self.tasks[session.task_id].waiting):
            waiting.remove(session)
        for key in [session.key, *session.also]:
            if self.sessions.pop(key, None) is not None:
                self.ended[key] = over

    async def seat(self, seat: Seat) -> Session:
        """The next episode for a unit: the one that was recorded, or the next that the harness begins."""
        recorded = self._recorded.pop((seat.unit.key.episode_id, seat.nth), None)
        if recorded is not None:
            return recorded
        if self.refuse is SPENT:
            raise BudgetStopped(str(SPENT))
        if self.refuse is CLOSED:
            raise EnvironmentFailed(_NO_FURTHER)
        future: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        known = self.tasks[seat.unit.task.task_id]
        known.seats.append((seat, future))
        self._match(known)
        return await future

    def _new(self, key: str, task_id: str, call: HarnessCall) -> Session:
        if key in self.ended:
            raise self.ended[key].again()
        if self.refuse is not None:
            raise self.refuse.again()
        if any(said.role == "assistant" for said in call.messages):
            raise Refused(
                404,
                "unknown_episode",
                f"episode {key[:80]!r} is not known, and its first call holds an assistant's turn: an "
                f"episode begins with its task alone (another run folder?)",
            )
        if len(self.sessions) >= self.serving.most_open:
            raise Refused(
                429, "too_many", f"{self.serving.most_open} episodes are open: end one of them first"
            )
        if task_id not in self.tasks and 0 < self.serving.tasks <= len(self.tasks):
            raise Refused(410, "enough_tasks", f"the run has its {self.serving.tasks} tasks: see --tasks")
        known = self._known(task_id)
        if not known.active:
            raise NEEDLESS.again()
        session = self.sessions[key] = Session(key, task_id, call)
        known.waiting.append(session)
        return session

    def _known(self, task_id: str, *, with_demo: bool = False) -> KnownTask:
        known = self.tasks.get(task_id)
        if known is None:
            known = self.tasks[task_id] = KnownTask(Task(task_id, task_id, "harness"))
            known.active = self._begin(known.task, with_demo)
        return known

    def _match(self, known: KnownTask) -> None:
        """Bring together units that need an episode and episodes whose harness still waits."""
        known.seats = [(seat, future) for seat, future in known.seats if not future.done()]
        while known.seats and (session := next((s for s in known.waiting if s.wanted), None)) is not None:
            seat, future = known.seats[0]
            episode = Recorded(session.key, session.task_id, seat.unit.key, seat.nth, session.first)
            self.journal.began(episode)
            known.seats.pop(0)
            known.waiting.remove(session)
            session.seated = True
            future.set_result(session)
        given_up = self._given_up.get(known.task.task_id, ())
        if not given_up or asyncio.get_running_loop().time() < self._may_take_over:
            return
        for session, old in list(zip((s for s in known.waiting if s.wanted), given_up, strict=False)):
            self.journal.taken_over(old.key, session.key)
            known.waiting.remove(session)
            old.also.append(session.key)
            self.sessions[session.key] = old
            self._is_back(old)
            session.end(MOVED)

    def _match_all(self) -> None:
        for known in self.tasks.values():
            self._match(known)

    def _is_back(self, session: Session) -> None:
        """A recorded episode's harness goes on with it."""
        given_up = self._given_up.get(session.task_id, [])
        if session in given_up:
            given_up.remove(session)

    def _forget(self, session: Session) -> None:
        """Drop an episode that has no part yet and whose harness has gone."""
        known = self.tasks[session.task_id]
        if not session.callers and session in known.waiting:
            known.waiting.remove(session)
            if self.sessions.get(session.key) is session:
                del self.sessions[session.key]


class Seat:
    """A task of the harness as an environment: `step` gives a turn and waits for the next call."""

    def __init__(self, unit: Unit, desk: Desk) -> None:
        self.unit, self.nth = unit, 0
        self._desk = desk
        self._session: Session | None = None
        self.usages: dict[str, Usage] = {}
        """Of the turns that were played, by their text: a repeated turn names its tokens again."""

    async def reset(self, seed: int) -> Reply:
        """Wait for the harness to begin an episode of the task."""
        self._session = await self._desk.seat(self)
        self.nth += 1
        return Reply("")

    def prompt(self, first: Reply) -> Sequence[Message]:
        """The messages of the episode's first call."""
        return [Message(said.role, said.text, "task") for said in self._playing.first.messages]

    async def step(self, text: str) -> Reply:
        """Answer the open call with a turn; what the harness says next, or its reward."""
        self._playing.give(text, self.usages.get(text))
        return await self._playing.heard(idle_s=self._desk.serving.idle_s)

    async def ask(self, question: str, **arguments: Any) -> Any:
        """No harness answers a scripted policy."""
        raise EnvironmentFailed(
            f"a scripted policy asked {question!r}, which no harness answers: name a model"
        )

    def ended(self, status: Status, error: str) -> None:
        """The episode has ended, as far as the run is concerned."""
        told = status in (Status.REPLAY_DESYNC, Status.ENVIRONMENT_ERROR) and error
        self.end(_over(status, f": {error}" if told else ""))

    def end(self, over: Refused) -> None:
        """End the episode that is being played, where there is one."""
        session, self._session = self._session, None
        if session is not None:
            self._desk.end(session, over)

    @property
    def _playing(self) -> Session:
        if self._session is None:
            raise EnvironmentFailed("no episode of the harness is being played")
        return self._session


@dataclass
class Harness:
    """The harness as a benchmark of which one unit is open."""

    version: str
    T_max: int
    seat: Seat | None = None
    """Of the unit that is open."""
    name = "harness"
    replay = Replay.CHECKED
    capacity = 1
    policies: Sequence[str] = ()

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        """None: the harness names its tasks as it begins them."""
        return ()

    def policy(self, spec: str) -> Policy | None:
        """None: a harness brings no policies."""
        return None

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        """The unit's seat."""
        if self.seat is None:
            raise EnvironmentFailed("no unit is being played")
        yield self.seat

    async def close(self) -> None:
        """Nothing to close."""


@cache
def _over(status: Status, told: str) -> Refused:
    return Refused(410, str(status), f"this episode is over ({status}){told}")
