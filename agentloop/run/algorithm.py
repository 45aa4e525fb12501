"""Algorithm 1 for one proposal: roll the proposer out, draw t', let the teacher continue, filter.

    for each of n proposals
        tau ~ rho                     the student plays the task to its end
        t' ~ T_switch(. | tau)        skipped if t' > T, T = 0, or Psi(tau) = 0
        go to turn t' - 1 of tau      by snapshot, or replay with every observation compared
        the teacher plays min(K, T_max - t' + 1) turns at most: all its tokens count in C_i
        if Phi = 1, the trace joins D_G and its tokens count in C_tr

A pilot adds hand-backs: the teacher's first k turns are replayed and the student finishes. Where nothing
can be replayed, t' is drawn first and the teacher takes over in the running episode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agentloop.run.episode import History, Played, teacher_turns
from agentloop.run.filters import phi_verdicts, psi_verdicts
from agentloop.run.parts import (
    Job,
    Stage,
    live_prefix,
    not_opened,
    student_episode,
    teacher_episode,
    within_budget,
)
from agentloop.run.rows import Cast, Key, Rows, merged, trace_row
from agentloop.run.switching import Switch, live_switch, switch_of
from agentloop.types import EnvironmentFailed, Status


async def proposal(stage: Stage, key: Key) -> Rows:
    """One proposal of a task, with what came of it."""
    job = stage.job
    if job.live:
        return await _live_proposal(stage, key)
    rollout, rows = await student_episode(stage, key, Cast(job.student_name))
    async with within_budget(stage) as parts:
        switch = await switch_of(stage, key, rollout)
        outcome = switch.outcome
        if not outcome:
            outcome, taught = await _continue(stage, key, rollout, switch.t_prime)
            parts.extend(taught)
    return merged(rows, _proposal_row(key, job, rollout, switch, outcome), *parts)


async def demonstration(stage: Stage, key: Key) -> Rows:
    """The teacher plays the task from its start: pure behavioural cloning, or a pilot's demonstration."""
    async with within_budget(stage) as parts:
        _, outcome, rows = await _taught(stage, key, None, parent="", switch_turn=1)
        parts.append(rows)
    if stage.job.recipe.rho != "teacher":
        return {name: table for name, table in rows.items() if name != "traces"}
    return merged(rows, _proposal_row(key, stage.job, None, Switch(1, 1.0), outcome))


def unopened(job: Job, key: Key, error: EnvironmentFailed) -> Rows:
    """What is written for a unit whose environment could not be opened."""
    played, rows = not_opened(job, key, error)
    if key.kind == "demo" and job.recipe.rho != "teacher":
        return rows
    rollout = None if key.kind == "demo" else played
    return merged(rows, _proposal_row(key, job, rollout, Switch(0, 0.0), "no_data"))


async def _live_proposal(stage: Stage, key: Key) -> Rows:
    switch = live_switch(key, stage.job)
    prefix, rows = await live_prefix(stage, key, turns=switch.t_prime - 1)
    outcome, parts = "invalid_switch" if prefix.reward is not None else "no_data", []
    if prefix.status is Status.SWITCHED:
        async with within_budget(stage) as parts:
            outcome, taught = await _continue(stage, key, prefix, switch.t_prime, standing=True)
            parts.extend(taught)
    return merged(rows, _proposal_row(key, stage.job, prefix, switch, outcome), *parts)


async def _continue(
    stage: Stage, parent: Key, rollout: Played, t_prime: int, *, standing: bool = False
) -> tuple[str, list[Rows]]:
    job = stage.job
    key = Key("continuation", parent.task, parent.rollout, proposal=parent.rollout, continuation=0)
    played, outcome, rows = await _taught(
        stage,
        key,
        rollout.history.before(t_prime),
        parent=parent.episode_id,
        switch_turn=t_prime,
        prefix_policy=job.student_name,
        standing=standing,
    )
    parts = [rows]
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
        parts.append((await student_episode(stage, handed, cast, played.history.before(t_prime + k)))[1])
    return outcome, parts


def _handbacks(job: Job, continuation: Played, t_prime: int) -> Iterator[tuple[int, int]]:
    """(k, replicate) of every hand-back to play: where the teacher ended within k turns, U_k is known."""
    played = continuation.length - t_prime + 1
    usable = continuation.reward is not None
    return ((k, m) for k in job.handback if usable and k < played for m in range(job.replicates))


async def _taught(
    stage: Stage,
    key: Key,
    base: History | None,
    *,
    parent: str,
    switch_turn: int,
    prefix_policy: str = "",
    standing: bool = False,
) -> tuple[Played, str, Rows]:
    """The teacher's part, its verdict, and its trace where Phi accepts it."""
    played, rows = await teacher_episode(
        stage,
        key,
        base,
        parent=parent,
        switch_turn=switch_turn,
        prefix_policy=prefix_policy,
        standing=standing,
    )
    outcome, trace = _judge(key, played, stage.job, switch_turn=switch_turn)
    return played, outcome, merged(rows, trace)


def _judge(key: Key, played: Played, job: Job, *, switch_turn: int) -> tuple[str, Rows]:
    """The outcome of a continuation, and its trace if Phi accepts it."""
    if played.status is Status.BAD_PARSE:
        played = replace(played, history=played.history.before(played.length))
    own = [turn for turn in played.history.turns if turn.t >= switch_turn]
    if not teacher_turns(own):
        return str(played.status), {}
    if not phi_verdicts(played.reward, job.recipe, played=played)[job.recipe.phi]:
        return "continuation_filtered", {}
    row = trace_row(key, played, job.recipe, switch_turn=switch_turn, teacher_ids=job.teacher_ids)
    return "accepted", {"traces": [row]}


def _proposal_row(key: Key, job: Job, rollout: Played | None, switch: Switch, outcome: str) -> Rows:
    row: dict[str, Any] = {
        **key.columns(),
        "proposal": max(key.rollout, key.continuation),
        "continuation": -1,
        "cluster_id": key.task.cluster_id,
        "recipe_hash": job.recipe.hash,
        "t_prime": switch.t_prime,
        "probability": switch.probability,
        "T": 0 if rollout is None else rollout.length,
        "R": None if rollout is None else rollout.reward,
        "psi": "{}" if rollout is None else json.dumps(psi_verdicts(rollout, job.recipe)),
        "outcome": outcome,
    }
    return {"proposals": [row]}
