"""One episode: a policy plays turns in an environment until something ends it.

Whatever goes wrong is caught at the seam where it happened and becomes the episode's status, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from agentloop.types import (
    Ask,
    Author,
    Environment,
    EnvironmentFailed,
    Message,
    Policy,
    PolicyFailed,
    Reply,
    Status,
    Turn,
)


@dataclass(frozen=True, slots=True)
class History:
    """The prompt q with its first observation, and the turns played so far."""

    prompt: tuple[Message, ...]
    turns: tuple[Turn, ...] = ()

    def context(self) -> tuple[Message, ...]:
        """h_t: what the next turn's policy reads."""
        messages = list(self.prompt)
        for turn in self.turns:
            messages.append(Message("assistant", turn.answer.text, turn.author))
            messages.append(Message("user", turn.reply.observation, "environment"))
        return tuple(messages)

    def before(self, t: int) -> History:
        """The history without turn t and what followed it."""
        return replace(self, turns=self.turns[: t - 1])


@dataclass(frozen=True, slots=True)
class Played:
    """An episode, or the part of one that was played: the whole history and how it ended."""

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
        # T_max is part of the task: whoever has not finished by then has failed.
        return 0.0 if self.status in (Status.HORIZON, Status.TURN_LENGTH, Status.CONTEXT) else None


def context_ids(history: History) -> Iterator[str]:
    """16 hex digits for h_0, h_1, …, h_T, each from the one before it and what was added."""
    digest = blake2b(digest_size=8)
    for message in history.prompt:
        _feed(digest, message.role, message.content)
    yield digest.hexdigest()
    for turn in history.turns:
        _feed(digest, "turn", turn.answer.text, turn.reply.observation)
        yield digest.hexdigest()


async def start(env: Environment, *, seed: int) -> History:
    """Reset the environment to the history before turn 1."""
    first = await env.reset(seed)
    return History(tuple(env.prompt(first)))


async def play(
    env: Environment,
    policy: Policy,
    history: History,
    *,
    author: Author,
    most: int,
    T_max: int,
    seeds: Callable[[int], int],
    episode_id: str = "",
) -> Played:
    """Let `policy` play at most `most` turns from `history`, which `env` must stand at.

    `seeds` gives the seed of turn t. T_max bounds the whole history.
    """
    *_, context_id = context_ids(history)
    last = min(len(history.turns) + most, T_max)
    for t in range(len(history.turns) + 1, last + 1):
        ask = Ask(history.context(), t, seeds(t), env, episode_id, context_id)
        try:
            answer = await policy(ask)
        except PolicyFailed as error:
            failed = Status.TEACHER_FAILED if author is Author.TEACHER else Status.STUDENT_FAILED
            return Played(history, failed, _line(error))
        if answer.finish_reason == "length":
            # A cut turn is never acted on: it is stored, and it ends the episode.
            cut = Turn(t, author, answer, Reply("", parse_status="turn_length"))
            return Played(_plus(history, cut), Status.TURN_LENGTH)
        try:
            reply = await env.step(answer.text)
        except EnvironmentFailed as error:
            lost = Turn(t, author, answer, Reply("", parse_status="environment_error"))
            return Played(_plus(history, lost), Status.ENVIRONMENT_ERROR, _line(error))
        history = _plus(history, Turn(t, author, answer, reply))
        if reply.done:
            return Played(history, Status.FINISHED)
        *_, context_id = context_ids(history)
    return Played(history, Status.HORIZON if len(history.turns) >= T_max else Status.CAPPED)


def _plus(history: History, turn: Turn) -> History:
    return replace(history, turns=(*history.turns, turn))


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def _feed(digest: blake2b, *parts: str) -> None:
    # Lengths keep ("ab", "c") and ("a", "bc") apart.
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)


def teacher_turns(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """The turns that can be trained on: the teacher's, without one that was cut."""
    return tuple(t for t in turns if t.author is Author.TEACHER and t.answer.finish_reason != "length")
