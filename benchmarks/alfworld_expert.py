"""How often the scripted expert wins an ALFWorld game: from the start, and from the student's states.

    FEWSTEPS_DATA=... python benchmarks/alfworld_expert.py --tasks train:60 --contexts 200

One student rollout a game gives one context at a trajectory-uniform turn; the prefix is replayed with every
observation checked, then the expert plays to the end. Standard errors are clustered by game.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass

from agentloop.environments.alfworld.expert import scripted_expert
from agentloop.environments.alfworld.pool import T_MAX, Alfworld, open_alfworld
from agentloop.environments.alfworld.student import StudentSettings, parse_student, scripted_student
from agentloop.run.episode import Episode, EpisodeSettings, play, start
from agentloop.run.replay import replay
from agentloop.run.types import seed_of
from agentloop.types import Author, Environment, Task


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


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="train_300:60", help="games of the expert's own episodes")
    parser.add_argument(
        "--contexts", default="train_300:200", help="games that give one learner context each"
    )
    parser.add_argument("--student", default="scripted")
    parser.add_argument("--grammar", default="2.1.1")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    pool = open_alfworld(grammar=args.grammar, workers=args.workers)
    settings = parse_student(args.student)
    try:
        expert = await each(pool, args.tasks, args.seed, from_start(seed=args.seed))
        learner = await each(pool, args.contexts, args.seed, from_student(settings, seed=args.seed))
    finally:
        await pool.close()
    print(f"{pool.version}; student {json.dumps(asdict(settings))}; seed {args.seed}")
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
        mean, se = clustered(rows)
        turns = sum(o.turns for o in rows) / len(rows)
        print(f"| {kind} | {len(rows)} | {mean:.3f} ± {se:.3f} | {turns:.1f} | {counts} |")


def clustered(outcomes: list[Outcome]) -> tuple[float, float]:
    """Mean and its standard error, clustered by game (ratio estimator, G / (G - 1))."""
    mean = sum(o.won for o in outcomes) / len(outcomes)
    residuals: dict[str, float] = defaultdict(float)
    for o in outcomes:
        residuals[o.game] += o.won - mean
    games = len(residuals)
    if games < 2:
        return mean, math.nan
    return mean, math.sqrt(games / (games - 1) * sum(r * r for r in residuals.values())) / len(outcomes)


if __name__ == "__main__":
    asyncio.run(main())
