"""Going back to a turn of an episode: by a snapshot, or by replay with every observation and state compared.

An environment whose texts hold something that changes from one play to the next (dates, process ids) has
`normalise(text)`, which says what is compared instead. Stored is the text as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentloop.run.episode import History, boundary, context_ids, prompt_of, step
from agentloop.run.types import OpenTask
from agentloop.types import Environment, EnvironmentFailed, Forks, Message, Normalises, Reply, can_fork


@dataclass(eq=False)
class ReplayDesync(Exception):
    """A replayed observation or state is not the recorded one. Recorded as `replay_desync`, never a crash."""

    turn: int
    expected: str
    got: str
    what: str = "observation"

    def __str__(self) -> str:
        expected, got = _where_apart(self.expected, self.got)
        return (
            f"replay left the recording at turn {self.turn}: expected the {self.what} {expected!r}, got "
            f"{got!r}; the environment is not the recorded one, or draws at random"
        )


async def go_back(opened: OpenTask, history: History, *, seed: int) -> None:
    """Bring the environment to the end of `history`: by a snapshot where there is one, else by replay."""
    *_, context_id = context_ids(history)
    if context_id not in opened.snapshots:
        await replay(opened.env, history, seed=seed)
    elif isinstance(opened.env, Forks):
        with boundary(EnvironmentFailed, "restore"):
            opened.env.restore(opened.snapshots[context_id])


def remember(opened: OpenTask, context_id: str) -> None:
    """Take a snapshot of the state before a turn, where the environment can."""
    if not can_fork(opened.setup.environments) or context_id in opened.snapshots:
        return
    if not isinstance(opened.env, Forks):
        raise EnvironmentFailed("its benchmark says forks = True, but it has no snapshot() and restore()")
    with boundary(EnvironmentFailed, "snapshot"):
        opened.snapshots[context_id] = opened.env.snapshot()


async def replay(env: Environment, history: History, *, seed: int) -> Reply:
    """Reset `env` and play the turns of `history` again; the last reply.

    ReplayDesync at the first observation or state that differs from the recorded one. The first observation
    is turn 0, compared with the prompt around it.
    """
    rule: Callable[[str], str] = env.normalise if isinstance(env, Normalises) else str
    first = Reply(_text(history.prompt), state_id=history.state_id)
    for t, recorded in enumerate((first, *(turn.reply for turn in history.turns))):
        with boundary(EnvironmentFailed, "replay"):
            if t == 0:
                reply = await env.reset(seed)
                seen = _text(prompt_of(env, reply))
            else:
                reply = await step(env, history.turns[t - 1].answer.text)
                seen = reply.observation
            expected, got = rule(recorded.observation), rule(seen)
        if expected != got:
            raise ReplayDesync(t, expected, got)
        states = recorded.state_id, reply.state_id
        if None not in states and states[0] != states[1]:
            raise ReplayDesync(t, str(states[0]), str(states[1]), "state")
    return reply


def _text(prompt: Sequence[Message]) -> str:
    return "\n".join(message.content for message in prompt)


def _where_apart(expected: str, got: str, *, most: int = 80) -> list[str]:
    """Both texts, shortened to where they begin to differ."""
    pairs = enumerate(zip(expected, got, strict=False))
    same = next((at for at, (a, b) in pairs if a != b), min(len(expected), len(got)))
    start = max(same - most // 4, 0)
    cut = "…" if start else ""
    return [cut + text[start : start + most] + "…" * (len(text) > start + most) for text in (expected, got)]
