"""Algorithm 1 for one task: roll the proposer out, draw t', let the teacher continue, filter.

    for each of n proposals
        tau ~ rho                     the student plays the task to its end
        t' ~ T_switch(. | tau)        skipped if t' > T, T = 0, or Psi(tau) = 0
        replay tau up to t' - 1       every observation is compared before the teacher is asked
        the teacher plays min(K, T_max - t' + 1) turns at most: all its tokens count in C_i
        if Phi = 1, the trace joins D_G and its tokens count in C_tr

A pilot adds hand-backs: the teacher's first k turns are replayed and the student finishes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentloop.episode import History, Played, play, start, teacher_turns
from agentloop.filters import phi_verdicts, psi_verdicts
from agentloop.replay import ReplayDesync, replay
from agentloop.rows import Cast, Key, Rows, episode_rows, merged, trace_row
from agentloop.seeds import seed_of
from agentloop.types import Author, Environment, EnvironmentFailed, Policy, Status, Task
from occupancy.recipe import Recipe
from occupancy.switch import draw_switch


@dataclass(frozen=True)
class Job:
    """Everything that one task's work needs and that no task changes."""

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
    demos: int = 1
    """Demonstrations of a task that is to have some."""


async def proposals(env: Environment, task: Task, job: Job) -> Rows:
    """All n proposals of one task, with what came of them."""
    parts = []
    for i in range(job.recipe.n):
        key = Key("rollout", task, i)
        rollout, rows = await _student(env, job, key, Cast(job.student_name))
        parts += [rows, await _proposal(env, job, key, rollout)]
    return merged(*parts)


async def demonstrations(env: Environment, task: Task, job: Job) -> Rows:
    """The teacher plays the task from its start: pure behavioural cloning, or a pilot's demonstrations."""
    parts: list[Rows] = []
    pure_bc = job.recipe.rho == "teacher"
    for i in range(job.recipe.n if pure_bc else job.demos):
        key = Key("demo", task, continuation=i)
        played, rows = await _teacher(env, job, key, None, parent="", switch_turn=1)
        parts.append(rows)
        if pure_bc:
            outcome, trace = _judge(key, played, job, switch_turn=1)
            parts += [trace, _proposal_row(key, job, None, t_prime=1, probability=1.0, outcome=outcome)]
    return merged(*parts)


def never_opened(kind: str, task: Task, job: Job, error: EnvironmentFailed) -> Rows:
    """The row of a task whose environment could not be opened: counted as an error, and not tried again."""
    key = Key("rollout", task, 0) if kind == "rollout" else Key("demo", task, continuation=0)
    cast = Cast(job.student_name) if kind == "rollout" else Cast(job.teacher_name, teacher=job.teacher_name)
    played = Played(History(()), Status.ENVIRONMENT_ERROR, " ".join(str(error).split()))
    return episode_rows(key, played, cast, job.recipe, environment=job.environment, seed=0, wall_s=0.0)


async def _proposal(env: Environment, job: Job, key: Key, rollout: Played) -> Rows:
    recipe, i = job.recipe, key.rollout
    drawn = draw_switch(
        rollout.length,
        recipe.switch,
        seed=job.seed,
        trajectory=seed_of(key.task.task_id, i),
        T_max=recipe.T_max,
    )
    outcome = ""
    if rollout.length == 0:
        outcome = "empty"
    elif rollout.reward is None:
        outcome = "no_data"
    elif not drawn.accepted:
        outcome = "invalid_switch"
    elif not psi_verdicts(rollout, recipe)[recipe.psi]:
        outcome = "prefix_filtered"
    parts: list[Rows] = []
    if not outcome:
        ours = Key("continuation", key.task, i, proposal=i, continuation=0)
        outcome, parts = await _continue(env, job, ours, rollout, parent=key, t_prime=drawn.t_prime)
    row = _proposal_row(
        key, job, rollout, t_prime=drawn.t_prime, probability=drawn.probability, outcome=outcome
    )
    return merged(row, *parts)


async def _continue(
    env: Environment, job: Job, key: Key, rollout: Played, *, parent: Key, t_prime: int
) -> tuple[str, list[Rows]]:
    prefix = rollout.history.before(t_prime)
    played, rows = await _teacher(
        env, job, key, prefix, parent=parent.episode_id, switch_turn=t_prime, prefix_policy=job.student_name
    )
    outcome, trace = _judge(key, played, job, switch_turn=t_prime)
    parts = [rows, trace]
    for k, m in _handbacks(job, played, t_prime):
        handed = Key("handback", key.task, key.rollout, key.proposal, key.continuation, replicate=m, k=k)
        cast = Cast(
            job.student_name,
            teacher=job.teacher_name if k else "",
            prefix_policy=job.student_name,
            parent=key.episode_id,
            switch_turn=t_prime if k else 0,
            K=k,
            first_turn=t_prime + k,
        )
        parts.append((await _student(env, job, handed, cast, played.history.before(t_prime + k)))[1])
    return outcome, parts


def _handbacks(job: Job, continuation: Played, t_prime: int) -> Iterator[tuple[int, int]]:
    """(k, replicate) of every hand-back to play: where the teacher ended within k turns, U_k is known."""
    played = continuation.length - t_prime + 1
    usable = continuation.reward is not None
    return ((k, m) for k in job.handback if usable and k < played for m in range(job.replicates))


def _judge(key: Key, played: Played, job: Job, *, switch_turn: int) -> tuple[str, Rows]:
    """The outcome of a continuation, and its trace if Phi accepts it."""
    own = [turn for turn in played.history.turns if turn.t >= switch_turn]
    if not teacher_turns(own):
        return str(played.status), {}
    if not phi_verdicts(played.reward, job.recipe)[job.recipe.phi]:
        return "continuation_filtered", {}
    return "accepted", {"traces": [trace_row(key, played, job.recipe, switch_turn=switch_turn)]}


def _proposal_row(
    key: Key, job: Job, rollout: Played | None, *, t_prime: int, probability: float, outcome: str
) -> Rows:
    row: dict[str, Any] = {
        **key.columns(),
        "proposal": max(key.rollout, key.continuation),
        "continuation": -1,
        "cluster_id": key.task.cluster_id,
        "recipe_hash": job.recipe.hash,
        "t_prime": t_prime,
        "probability": probability,
        "T": 0 if rollout is None else rollout.length,
        "R": None if rollout is None else rollout.reward,
        "psi": "{}" if rollout is None else json.dumps(psi_verdicts(rollout, job.recipe)),
        "outcome": outcome,
    }
    return {"proposals": [row]}


async def _student(
    env: Environment, job: Job, key: Key, cast: Cast, base: History | None = None
) -> tuple[Played, Rows]:
    return await _episode(env, job, key, cast, base, author=Author.STUDENT, most=job.recipe.T_max)


async def _teacher(
    env: Environment,
    job: Job,
    key: Key,
    base: History | None,
    *,
    parent: str,
    switch_turn: int,
    prefix_policy: str = "",
) -> tuple[Played, Rows]:
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
    return await _episode(env, job, key, cast, base, author=Author.TEACHER, most=K)


async def _episode(
    env: Environment,
    job: Job,
    key: Key,
    cast: Cast,
    base: History | None,
    *,
    author: Author,
    most: int,
) -> tuple[Played, Rows]:
    """Bring the environment to `base` (None: the start), let `author` play, and make the rows."""
    began = time.monotonic()
    # Episodes of one rollout share its environment seed: their prefixes must replay.
    seed = seed_of(job.seed, key.task.task_id, "environment", max(key.rollout, 0))
    purpose = (job.seed, key.task.task_id, key.kind, key.rollout, key.continuation, key.k, key.replicate)
    try:
        if base is None:
            base = await start(env, seed=seed)
        else:
            await replay(env, base, seed=seed)
    except ReplayDesync as error:
        played = Played(base or History(()), Status.REPLAY_DESYNC, str(error))
    except EnvironmentFailed as error:
        played = Played(base or History(()), Status.ENVIRONMENT_ERROR, str(error))
    else:
        played = await play(
            env,
            job.teacher if author is Author.TEACHER else job.student,
            base,
            author=author,
            most=most,
            T_max=job.recipe.T_max,
            seeds=lambda t: seed_of(*purpose, t),
            episode_id=key.episode_id,
        )
    rows = episode_rows(
        key,
        played,
        cast,
        job.recipe,
        environment=job.environment,
        seed=seed,
        wall_s=time.monotonic() - began,
    )
    return played, rows
