"""One episode: a policy plays turns in an environment until something ends it.

An exception of the model or of the environment becomes the episode's status. An error of fewsteps itself is
no data: it stops the run, which can be resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from agentloop.types import (
    Answer,
    Ask,
    Author,
    ContextOverflow,
    Environment,
    EnvironmentFailed,
    Message,
    Policy,
    PolicyFailed,
    Reply,
    Status,
    Turn,
)
from occupancy.record.errors import FewstepsError, frame_of
from occupancy.record.finish import is_target
from occupancy.record.rows import ContextHash, storable

LOST = (Status.HORIZON, Status.TURN_LENGTH, Status.CONTEXT, Status.BAD_PARSE)
"""Ends of an episode that has failed its task: R = 0. T_max is part of the task."""
NO_DATA = tuple(str(status) for status in Status if status not in (Status.FINISHED, *LOST))
"""Ends that say nothing about the policy: no R, and no attempt that counts where these are left out."""


@dataclass(frozen=True, slots=True)
class History:
    """The prompt q with its first observation, and the turns played so far."""

    prompt: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()
    state_id: int | None = None
    """State of the environment before turn 1, where there is one."""

    def context(self) -> tuple[Message, ...]:
        """h_t: what the next turn's policy reads."""
        messages = list(self.prompt)
        for turn in self.turns:
            messages += messages_of(turn)
        return tuple(messages)

    def state_before(self, t: int) -> int | None:
        """The environment's state before turn t."""
        return self.state_id if t == 1 else self.turns[t - 2].reply.state_id

    def before(self, t: int) -> History:
        """The history without turn t and what followed it."""
        return replace(self, turns=self.turns[: t - 1])


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode: its whole history, by student and teacher, and how it ended."""

    history: History
    status: Status
    error: str = ""

    @property
    def length(self) -> int:
        """T, all turns of the history."""
        return len(self.history.turns)

    @property
    def reward(self) -> float | None:
        """R in [0, 1], or None: an episode that was capped or ended in an error has no terminal reward."""
        if self.status is Status.FINISHED:
            return self.history.turns[-1].reply.reward
        return 0.0 if self.status in LOST else None


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """How a policy is to play, the same for every turn."""

    author: Author
    most: int
    """Most turns it may play."""
    T_max: int
    """Most turns of the whole history."""
    seeds: Callable[[int], int]
    """Seed of turn t."""
    episode_id: str = ""
    order: int = 0
    wall_s: float | None = None
    """Seconds for all turns that are played; None = no limit."""
    end_on: tuple[str, ...] = ()
    """Parse statuses that end the episode; 'any': all but ok."""
    before_turn: Callable[[str], None] = lambda context_id: None
    """Called before each turn with the hash of its context: takes snapshots."""


async def start(env: Environment, *, seed: int) -> History:
    """Reset the environment to the history before turn 1."""
    with boundary(EnvironmentFailed, "reset"):
        first = await env.reset(seed)
        return History(prompt_of(env, first), state_id=first.state_id)


def prompt_of(env: Environment, first: Reply) -> tuple[Message, ...]:
    """The prompt around a first observation, as it is stored, shown and compared."""
    return tuple(replace(message, content=storable(message.content)) for message in env.prompt(first))


async def step(env: Environment, text: str) -> Reply:
    """Play one turn; the environment's answer as it is stored, shown and compared."""
    reply = await env.step(text)
    return replace(reply, observation=storable(reply.observation))


async def play(env: Environment, policy: Policy, history: History, how: EpisodeSettings) -> Episode:
    """Let `policy` play from `history`, which must be the state of `env`."""
    turns, messages, context = list(history.turns), list(history.context()), _hash_of(history.prompt)
    for turn in turns:
        context.add(turn.answer.text, turn.reply.observation)
    status, error = Status.CAPPED, ""
    last = min(len(turns) + how.most, how.T_max)
    try:
        async with asyncio.timeout(how.wall_s):
            for t in range(len(turns) + 1, last + 1):
                ask = Ask(
                    tuple(messages), t, how.seeds(t), env, how.episode_id, context.context_id, how.order
                )
                played, status, error = await _turn(env, policy, ask, how)
                if played is not None:
                    turns.append(played)
                    parsed = played.reply.parse_status
                    ends = parsed in how.end_on or ("any" in how.end_on and parsed != "ok")
                    if status is Status.CAPPED and ends:
                        status = Status.BAD_PARSE
                if status is not Status.CAPPED:
                    break
                messages += messages_of(turns[-1])
                context.add(turns[-1].answer.text, turns[-1].reply.observation)
    except TimeoutError:
        status, error = Status.WALL_TIME, f"not over after {how.wall_s:g} s"
    if status is Status.CAPPED and len(turns) >= how.T_max:
        status = Status.HORIZON
    return Episode(replace(history, turns=tuple(turns)), status, error)


async def _turn(
    env: Environment, policy: Policy, ask: Ask, how: EpisodeSettings
) -> tuple[Turn | None, Status, str]:
    """One turn, where there is one, and how it left the episode: CAPPED where it goes on."""
    author = how.author
    try:
        how.before_turn(ask.context_id)
        with boundary(PolicyFailed, "the policy"):
            answer = await policy(ask)
            answer = replace(answer, text=storable(answer.text))
    except (PolicyFailed, EnvironmentFailed) as error:  # the latter of a snapshot, or of a scripted policy
        return None, status_of(error, author), one_line(error)
    if answer.finish_reason != "stop":
        # A turn that was cut is stored and never played: it ends the episode.
        return _cut(ask.t, author, answer)
    try:
        with boundary(EnvironmentFailed, "step"):
            reply = await step(env, answer.text)
            _check_reward(reply)
    except EnvironmentFailed as error:
        lost = _unanswered(ask.t, author, answer, str(error.status))
        return lost, error.status, one_line(error)
    return Turn(ask.t, author, answer, reply), Status.FINISHED if reply.done else Status.CAPPED, ""


def _cut(t: int, author: Author, answer: Answer) -> tuple[Turn, Status, str]:
    """A turn cut at a limit has failed its task; what a server ended for reasons of its own is no data."""
    if answer.finish_reason == "length":
        told = f"turn {t} counts as cut: {answer.cut_by}" if answer.cut_by else ""
        return _unanswered(t, author, answer, "turn_length"), Status.TURN_LENGTH, told
    status = status_of(PolicyFailed(), author)
    told = f"turn {t} ended with a finish reason that is not known ({answer.finish_reason})"
    return _unanswered(t, author, answer, str(status)), status, told


def status_of(failure: PolicyFailed | EnvironmentFailed, author: Author) -> Status:
    """How a failure ends an episode in a turn of the author's."""
    if isinstance(failure, EnvironmentFailed):
        return failure.status
    if isinstance(failure, ContextOverflow):
        return Status.CONTEXT
    return Status.TEACHER_FAILED if author is Author.TEACHER else Status.STUDENT_FAILED


def _check_reward(reply: Reply) -> None:
    R = reply.reward
    if (reply.done or R is not None) and (R is None or not 0 <= R <= 1):
        raise EnvironmentFailed(f"reward {R!r} with done={reply.done}: expected R in [0, 1] at the end")


@contextmanager
def boundary(failure: Callable[[str], Exception], what: str) -> Iterator[None]:
    """Convert exceptions of a model, an environment or a user's module to `failure`; our own errors pass."""
    try:
        yield
    except (FewstepsError, PolicyFailed, EnvironmentFailed):
        raise
    except (Exception, SystemExit) as error:  # the only handler of arbitrary exceptions
        raise failure(f"{what} raised {type(error).__name__}: {error}{frame_of(error)}") from error


def context_ids(history: History) -> Iterator[str]:
    """16 hex digits for h_0, h_1, …, h_T, each from the one before it and what was added."""
    context = _hash_of(history.prompt)
    yield context.context_id
    for turn in history.turns:
        context.add(turn.answer.text, turn.reply.observation)
        yield context.context_id


def teacher_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns that can be trained on: the teacher's, without one that was cut or has no text."""
    return tuple(
        t for t in turns if t.author is Author.TEACHER and is_target(t.answer.text, t.answer.finish_reason)
    )


def _hash_of(prompt: Sequence[Message]) -> ContextHash:
    return ContextHash((message.role, message.content) for message in prompt)


def one_line(error: Exception) -> str:
    """An error's message as a table cell."""
    return " ".join(str(error).split())[:500]


def messages_of(turn: Turn) -> tuple[Message, Message]:
    """The turn and the environment's reply, as the next context holds them."""
    return (
        Message("assistant", turn.answer.text, turn.author, turn.answer.token_ids),
        Message(turn.reply.role, turn.reply.observation, "environment"),
    )


def _unanswered(t: int, author: Author, answer: Answer, why: str) -> Turn:
    return Turn(t, author, answer, Reply("", parse_status=why))
