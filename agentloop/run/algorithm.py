"""Algorithm 1, from a task to its rows. Read this file first, from top to bottom: every step calls downwards.

    play_unit             open the task; a unit is a proposal, a demonstration, or an attempt at a task
      proposal            each of the n proposals of a task
        play_episode        tau ~ rho: the student plays the task to its end
        draw_switch_turn    t' ~ T_switch(. | tau); skipped if t' > T, T = 0, or Psi(tau) = 0
        context_passes      skipped where a filter on contexts refuses; for `mixed` the student replays
        continuation        go to turn t' - 1 of tau, by snapshot or by checked replay; the teacher plays
                            min(K, T_max - t' + 1) turns at most: all of its tokens count in C_i
          accept              if Phi = 1, the trace joins D_G and its tokens count in C_tr
          hand_backs          of a pilot: the student finishes after k turns of the teacher
      demonstration       the teacher plays the task from its start
      attempt             evaluation: one policy plays the task, and is scored

Where an environment can be neither replayed nor forked, t' is drawn first and the teacher takes over in the
running episode. `collect` and `evaluate` say which units there are; `units` plays many of them at a time.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import cast

from agentloop.run.episode import Episode, EpisodeSettings, History, one_line, play, start, teacher_turns
from agentloop.run.filters import mixed, own_verdict, phi_verdicts
from agentloop.run.replay import ReplayDesync, go_back, remember
from agentloop.run.rows import write_episode, write_proposal, write_score, write_trace
from agentloop.run.switching import draw_switch_turn, turns_before_switch
from agentloop.run.types import EpisodeSpec, OpenTask, Setup, Switch, Unit, seed_of
from agentloop.types import Author, Ends, Environment, EnvironmentFailed, Reply, Status
from occupancy.record.recipe import REPLAYS
from occupancy.record.rows import Rows


async def play_unit(unit: Unit, setup: Setup) -> Rows:
    """The rows of one unit; a task that does not open has rows too, see `folder.never_began`."""
    async with AsyncExitStack() as stack:
        try:
            env = await stack.enter_async_context(setup.environments.open(unit.task))
        except EnvironmentFailed as error:
            env = cast(Environment, _Unopened(error))
        opened = OpenTask(env, unit, setup)
        if unit.key.kind == "rollout":
            await proposal(opened)
        elif unit.key.kind == "demo":
            await demonstration(opened)
        else:
            await attempt(opened)
    return opened.rows


async def proposal(opened: OpenTask) -> None:
    """One proposal of a task, and what came of it."""
    most = turns_before_switch(opened)
    rollout = await play_episode(opened, EpisodeSpec(opened.unit.key, Author.STUDENT, most))
    async with within_budget(opened):
        switch = await draw_switch_turn(opened, rollout)
        if not switch.skipped and not await context_passes(opened, rollout, switch.t_prime):
            switch = replace(switch, skipped="context_filtered")
        outcome = switch.skipped or await continuation(opened, rollout, switch.t_prime)
    write_proposal(opened, rollout, switch, outcome)


async def demonstration(opened: OpenTask) -> None:
    """The teacher plays the task from its start: pure behavioural cloning, or a pilot's demonstration."""
    recipe = opened.setup.settings.recipe
    K = recipe.cap(1)
    spec = EpisodeSpec(opened.unit.key, Author.TEACHER, K, switch_turn=1, K=K)
    async with within_budget(opened):
        demo = await play_episode(opened, spec)
        if recipe.rho == "teacher":  # a pilot's demonstrations are measured, and are no data of its recipe
            write_proposal(opened, None, Switch(1, 1.0), accept(opened, spec, demo))


async def attempt(opened: OpenTask) -> None:
    """One attempt of the evaluated policy at a task, and its score."""
    most = opened.setup.settings.recipe.T_max
    write_score(opened, await play_episode(opened, EpisodeSpec(opened.unit.key, Author.STUDENT, most)))


async def context_passes(opened: OpenTask, rollout: Episode, t_prime: int) -> bool:
    """Whether the teacher may be asked at turn t'.

    For `mixed` the student plays from there up to REPLAYS times, until a success and a failure are known.
    """
    recipe, key, rewards = opened.setup.settings.recipe, opened.unit.key, [rollout.reward]
    if ":" in recipe.context:
        context = Episode(rollout.history.before(t_prime), Status.SWITCHED)
        return own_verdict(recipe.context, context, recipe)
    for m in range(REPLAYS if recipe.context == "mixed" else 0):
        spec = EpisodeSpec(
            replace(key, kind="handback", proposal=key.rollout, continuation=0, replicate=m),
            Author.STUDENT,
            recipe.T_max,
            start=rollout.history.before(t_prime),
            parent=key.episode_id,
        )
        rewards.append((await play_episode(opened, spec)).reward)
        if mixed(rewards, success_at=recipe.success_at):
            return True
    return recipe.context == "all"


async def continuation(opened: OpenTask, rollout: Episode, t_prime: int) -> str:
    """The teacher plays on from turn t' - 1 of the rollout, then the hand-backs; the proposal's outcome."""
    proposed, K = opened.unit.key, opened.setup.settings.recipe.cap(t_prime)
    spec = EpisodeSpec(
        replace(proposed, kind="continuation", proposal=proposed.rollout, continuation=0),
        Author.TEACHER,
        K,
        start=rollout.history.before(t_prime),
        parent=proposed.episode_id,
        switch_turn=t_prime,
        K=K,
    )
    taught = await play_episode(opened, spec)
    for handback in hand_backs(opened.setup, spec, taught):
        await play_episode(opened, handback)
    return accept(opened, spec, taught)


def accept(opened: OpenTask, spec: EpisodeSpec, taught: Episode) -> str:
    """The outcome of the teacher's turns; where Phi = 1 they become a trace."""
    recipe = opened.setup.settings.recipe
    if taught.status is Status.BAD_PARSE:
        taught = replace(taught, history=taught.history.before(taught.length))
    played = taught.history.turns[spec.switch_turn - 1 :]
    if not teacher_turns(played):
        whole = any(turn.answer.finish_reason == "stop" for turn in played)
        return "no_target" if whole else str(taught.status)
    if not phi_verdicts(taught.reward, recipe, episode=taught)[recipe.phi]:
        return "continuation_filtered"
    write_trace(opened, spec, taught)
    return "accepted"


def hand_backs(setup: Setup, spec: EpisodeSpec, taught: Episode) -> Iterator[EpisodeSpec]:
    """The hand-backs of a pilot's continuation: for each k after which the teacher played another turn."""
    settings, t_prime = setup.settings, spec.switch_turn
    if not settings.pilot or taught.reward is None:
        return
    for k in settings.handback:
        for m in range(settings.replicates if k < taught.length - t_prime + 1 else 0):
            yield EpisodeSpec(
                replace(spec.key, kind="handback", replicate=m, k=k),
                Author.STUDENT,
                settings.recipe.T_max,
                start=taught.history.before(t_prime + k),
                parent=spec.key.episode_id,
                switch_turn=t_prime if k else 0,
                K=k,
            )


@asynccontextmanager
async def within_budget(opened: OpenTask) -> AsyncIterator[None]:
    """Wait until the budget for whole continuations, where there is one, allows the teacher's turns."""
    budget, order = opened.setup.continuation_budget, opened.unit.order
    if budget is None:
        yield
        return
    await budget.enter(order)
    try:
        yield
    finally:
        await budget.leave(order, opened.setup.spending.cost_of(opened.rows, asked=sum(opened.asked)))


async def play_episode(opened: OpenTask, spec: EpisodeSpec) -> Episode:
    """Play one episode and write its rows; a failure becomes its status."""
    setup, settings, key, began = opened.setup, opened.setup.settings, spec.key, time.monotonic()
    # Episodes of one rollout share their environment's seed: their prefixes must replay.
    seed = seed_of(settings.seed, key.task_id, "environment", max(key.rollout, 0))
    purpose = (settings.seed, key.task_id, key.kind, key.rollout, key.continuation, key.k, key.replicate)
    how = EpisodeSettings(
        spec.author,
        spec.most,
        settings.recipe.T_max,
        lambda t: seed_of(*purpose, t),
        episode_id=key.episode_id,
        order=opened.unit.order,
        wall_s=settings.wall_s,
        end_on=settings.end_on,
        before_turn=lambda context_id: remember(opened, context_id),
    )
    history = spec.start
    try:
        if history is None:
            history = await start(opened.env, seed=seed)
        elif not setup.live:
            await go_back(opened, history, seed=seed)
        policy = setup.teacher if spec.author is Author.TEACHER else setup.student
        episode = await play(opened.env, policy, history, how)
    except ReplayDesync as error:
        episode = Episode(history or History(()), Status.REPLAY_DESYNC, str(error))
    except EnvironmentFailed as error:
        episode = Episode(history or History(()), error.status, one_line(error))
    if setup.live and key.kind == "rollout" and episode.status is Status.CAPPED:
        episode = replace(episode, status=Status.SWITCHED)
    if isinstance(opened.env, Ends):
        opened.env.ended(episode.status, episode.error)
    write_episode(opened, spec, episode, seed=seed, wall_s=time.monotonic() - began)
    return episode


class _Unopened:
    """In the place of an environment that did not open: its reset fails, and nothing else is asked of it."""

    def __init__(self, error: EnvironmentFailed) -> None:
        self._error = error

    async def reset(self, seed: int) -> Reply:
        raise self._error
