"""The parts that Algorithm 1 is put together from: one unit's job, its environment, and its episodes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from agentloop.ledger.budget import Continuations
from agentloop.run.episode import History, Play, Played, boundary, context_ids, one_line, play, start
from agentloop.run.replay import ReplayDesync, replay
from agentloop.run.rows import Cast, Key, Rows, episode_rows, merged
from agentloop.run.seeds import seed_of
from agentloop.types import Author, Environment, EnvironmentFailed, Policy, Status
from occupancy.record.recipe import Recipe

SWITCH_PROMPT = (
    "The attempt above did not reach its goal. It has {T} assistant turns, numbered from 1. Which is the "
    "first "
    "one that you would have played differently? Answer with its number alone."
)


@dataclass(frozen=True)
class Job:
    """Everything that a unit's work needs and that no task changes."""

    recipe: Recipe
    student: Policy
    teacher: Policy
    """Metered: every call is in the ledger."""
    student_name: str
    teacher_name: str
    environment: str
    """Name and version, as every episode records them."""
    seed: int
    handback: tuple[int, ...] = ()
    """Teacher turns k after which the student takes over again; empty: no hand-backs."""
    replicates: int = 2
    """Hand-backs for each k."""
    wall_s: float | None = None
    """Seconds for one episode; None = no limit."""
    end_on: tuple[str, ...] = ()
    """Parse statuses that end an episode."""
    switch_prompt: str = SWITCH_PROMPT
    """What the teacher is asked where it decides when to take over; {T} stands for the number of turns."""
    switch_weights: str = ""
    """package.module:function that gives w_1 .. w_T of a rollout, for the law 'weights'."""
    live: bool = False
    """The teacher takes over in the running episode: the environment cannot be replayed."""
    forks: bool = False
    """The environment can take snapshots."""
    teacher_ids: bool = False
    """The teacher's token ids are the student tokenizer's."""
    continuation_budget: Continuations | None = None
    cost: Callable[[Rows], int] = lambda rows: sum(trace["C_tr"] for trace in rows.get("traces", ()))
    """What a continuation with these rows takes out of that budget."""


@dataclass(frozen=True)
class Stage:
    """An open environment, and its snapshots by the context before the turn."""

    env: Environment
    job: Job
    order: int
    """Place of the unit in the run."""
    snapshots: dict[str, Any] = field(default_factory=dict)

    async def bring_to(self, base: History, *, seed: int) -> None:
        """Let the environment stand at `base`: by snapshot where there is one, else by checked replay."""
        *_, context_id = context_ids(base)
        if context_id in self.snapshots:
            with boundary(EnvironmentFailed, "restore"):
                self.env.restore(self.snapshots[context_id])  # type: ignore[attr-defined]
        else:
            await replay(self.env, base, seed=seed)

    def remember(self, context_id: str) -> None:
        """Take a snapshot of the state before a turn, where the environment can."""
        if self.job.forks and context_id not in self.snapshots:
            with boundary(EnvironmentFailed, "snapshot"):
                self.snapshots[context_id] = self.env.snapshot()  # type: ignore[attr-defined]


@asynccontextmanager
async def within_budget(stage: Stage) -> AsyncIterator[list[Rows]]:
    """Leave to let the teacher continue, where the job's budget asks for it; put the rows into the list."""
    job = stage.job
    rows: list[Rows] = []
    if job.continuation_budget is None:
        yield rows
        return
    await job.continuation_budget.enter(stage.order)
    try:
        yield rows
    finally:
        await job.continuation_budget.leave(stage.order, job.cost(merged(*rows)))


async def student_episode(
    stage: Stage, key: Key, cast: Cast, base: History | None = None
) -> tuple[Played, Rows]:
    """The student plays to the end, from `base` or from the start."""
    return await _episode(stage, key, cast, base, author=Author.STUDENT, most=stage.job.recipe.T_max)


async def teacher_episode(
    stage: Stage,
    key: Key,
    base: History | None,
    *,
    parent: str,
    switch_turn: int,
    prefix_policy: str = "",
    standing: bool = False,
) -> tuple[Played, Rows]:
    """The teacher plays at most K turns; `standing`: the environment is at `base` already."""
    job = stage.job
    K = job.recipe.cap(switch_turn)
    cast = Cast(
        job.teacher_name,
        teacher=job.teacher_name,
        prefix_policy=prefix_policy,
        parent=parent,
        switch_turn=switch_turn,
        K=K,
        first_turn=switch_turn,
    )
    return await _episode(stage, key, cast, base, author=Author.TEACHER, most=K, standing=standing)


async def live_prefix(stage: Stage, key: Key, *, turns: int) -> tuple[Played, Rows]:
    """The student plays the first `turns` turns and stops where the teacher is to take over."""
    return await _episode(
        stage, key, Cast(stage.job.student_name), None, author=Author.STUDENT, most=turns, live=True
    )


def not_opened(job: Job, key: Key, error: EnvironmentFailed) -> tuple[Played, Rows]:
    """The episode of a task whose environment could not be opened: it is counted, and is no data."""
    played = Played(History(()), error.status, one_line(error))
    cast = Cast(job.teacher_name, teacher=job.teacher_name) if key.kind == "demo" else Cast(job.student_name)
    return played, _rows(job, key, played, cast, seed=_environment_seed(job, key), began=time.monotonic())


async def _episode(
    stage: Stage,
    key: Key,
    cast: Cast,
    base: History | None,
    *,
    author: Author,
    most: int,
    standing: bool = False,
    live: bool = False,
) -> tuple[Played, Rows]:
    """Bring the environment to `base` (None: the start), let `author` play, and make the rows."""
    job, env = stage.job, stage.env
    began = time.monotonic()
    seed = _environment_seed(job, key)
    purpose = (job.seed, key.task.task_id, key.kind, key.rollout, key.continuation, key.k, key.replicate)
    try:
        if base is None:
            base = await start(env, seed=seed)
        elif not standing:
            await stage.bring_to(base, seed=seed)
        how = Play(
            author=author,
            most=most,
            T_max=job.recipe.T_max,
            seeds=lambda t: seed_of(*purpose, t),
            episode_id=key.episode_id,
            order=stage.order,
            wall_s=job.wall_s,
            end_on=job.end_on,
            before_turn=stage.remember,
        )
        played = await play(env, job.teacher if author is Author.TEACHER else job.student, base, how)
    except ReplayDesync as error:
        played = Played(base or History(()), Status.REPLAY_DESYNC, str(error))
    except EnvironmentFailed as error:
        played = Played(base or History(()), error.status, one_line(error))
    if live and played.status is Status.CAPPED:
        played = Played(played.history, Status.SWITCHED)
    return played, _rows(job, key, played, cast, seed=seed, began=began)


def _rows(job: Job, key: Key, played: Played, cast: Cast, *, seed: int, began: float) -> Rows:
    wall_s = time.monotonic() - began
    return episode_rows(key, played, cast, job.recipe, environment=job.environment, seed=seed, wall_s=wall_s)


def _environment_seed(job: Job, key: Key) -> int:
    # Episodes of one rollout share their environment's seed: their prefixes must replay.
    return seed_of(job.seed, key.task.task_id, "environment", max(key.rollout, 0))
