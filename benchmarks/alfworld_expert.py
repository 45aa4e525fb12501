"""How often the scripted expert wins an ALFWorld game: from the start, and from the student's states.

    FEWSTEPS_DATA=... python -m benchmarks alfworld_expert --tasks train:60 --contexts train:200

The expert plays the games of `--tasks` from the start. One student rollout in each game of `--contexts` gives
one context at a trajectory-uniform turn; the prefix is replayed with every observation checked, then the
expert plays to the end. Standard errors are clustered by game.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np

from agentloop.environments.alfworld.expert import scripted_expert
from agentloop.environments.alfworld.pool import T_MAX, Alfworld, open_alfworld
from agentloop.environments.alfworld.student import StudentSettings, scripted_student
from agentloop.policies.scripted import settings_from
from agentloop.run.episode import Episode, EpisodeSettings, play, start
from agentloop.run.replay import replay
from agentloop.run.types import seed_of
from agentloop.types import Author, Environment, Task
from occupancy.statistics.clusters import clustered_ratio


@dataclass(frozen=True)
class Outcome:
    kind: str
    game: str
    where: str
    """start | student | context"""
    won: bool
    turns: int
    status: str


Job = Callable[[Environment, Task], Awaitable[list[Outcome]]]


async def main(
    *,
    tasks: str = "train_300:60",
    contexts: str = "train_300:200",
    student: str = "scripted",
    grammar: str = "2.1.1",
    workers: int = 2,
    seed: int = 0,
) -> None:
    pool = open_alfworld(grammar=grammar, workers=workers)
    settings = settings_from(student, StudentSettings)
    try:
        expert = await each(pool, tasks, seed, from_start(seed=seed))
        learner = await each(pool, contexts, seed, from_student(settings, seed=seed))
    finally:
        await pool.close()
    print(f"{pool.version}; student {json.dumps(asdict(settings))}; seed {seed}")
    for where in ("start", "student", "context"):
        table(where, [o for o in (*expert, *learner) if o.where == where])


async def each(pool: Alfworld, spec: str, seed: int, job: Job) -> list[Outcome]:
    """Run `job` on every game of a spec, as many at once as there are workers."""

    async def one(task: Task) -> list[Outcome]:
        async with pool.open(task) as env:
            return await job(env, task)

    parts = await asyncio.gather(*(one(task) for task in pool.tasks(spec, seed=seed)))
    return [outcome for part in parts for outcome in part]


def from_start(*, seed: int) -> Job:
    async def job(env: Environment, task: Task) -> list[Outcome]:
        begin = await start(env, seed=0)
        played = await play(env, scripted_expert(), begin, whole(Author.TEACHER, task, seed))
        return [outcome(task, "start", played)]

    return job


def from_student(settings: StudentSettings, *, seed: int) -> Job:
    async def job(env: Environment, task: Task) -> list[Outcome]:
        begin = await start(env, seed=0)
        rollout = await play(env, scripted_student(settings), begin, whole(Author.STUDENT, task, seed))
        t = random.Random(seed_of(seed, task.task_id, "switch")).randint(1, rollout.length)
        prefix = rollout.history.before(t)
        await replay(env, prefix, seed=0)
        after = await play(env, scripted_expert(), prefix, whole(Author.TEACHER, task, seed))
        return [outcome(task, "student", rollout), outcome(task, "context", after)]

    return job


def whole(author: Author, task: Task, seed: int) -> EpisodeSettings:
    """How an episode is played to its end."""
    return EpisodeSettings(
        author=author, most=T_MAX, T_max=T_MAX, seeds=lambda t: seed_of(seed, task.task_id, author, t)
    )


def outcome(task: Task, where: str, played: Episode) -> Outcome:
    return Outcome(task.kind, task.cluster_id, where, played.reward == 1.0, played.length, played.status)


def table(where: str, outcomes: Iterable[Outcome]) -> None:
    by_kind = defaultdict(list)
    for o in outcomes:
        by_kind[o.kind].append(o)
        by_kind["all"].append(o)
    print(f"\n{where}\n| task type | episodes | success ± SE | mean T | statuses |\n|---|---|---|---|---|")
    for kind in sorted(by_kind, key=lambda k: (k == "all", k)):
        rows = by_kind[kind]
        counts = ", ".join(f"{n} {status}" for status, n in sorted(Counter(o.status for o in rows).items()))
        won, games = np.array([o.won for o in rows], float), [o.game for o in rows]
        mean, se = clustered_ratio(won, np.ones(len(rows)), cluster=games)
        turns = sum(o.turns for o in rows) / len(rows)
        print(f"| {kind} | {len(rows)} | {mean:.3f} ± {se:.3f} | {turns:.1f} | {counts} |")
