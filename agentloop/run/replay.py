"""Playing recorded turns again, with every observation checked.

An environment whose texts hold something that changes from one play to the next (dates, process ids) has
`normalise(text)`, which says what is compared instead. Stored is the text as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

from agentloop.run.episode import History, boundary, prompt_of, step
from agentloop.types import Environment, EnvironmentFailed, Message, Normalises, Reply


class ReplayDesync(Exception):
    """A replayed observation is not the recorded one. Recorded as `replay_desync`, never a crash."""

    def __init__(self, turn: int, expected: str, got: str) -> None:
        super().__init__(turn, expected, got)
        self.turn, self.expected, self.got = turn, expected, got

    def __str__(self) -> str:
        return (
            f"replay left the recording at turn {self.turn}: expected the observation with hash "
            f"{self.expected}, got {self.got}; the environment is not the recorded one, or draws at random"
        )


def observation_hash(text: str) -> str:
    """BLAKE2b-64 of an observation's raw text, as 16 hexadecimal digits."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


async def replay(env: Environment, history: History, *, seed: int) -> Reply:
    """Reset `env` and play the turns of `history` again; the last reply.

    ReplayDesync at the first observation that differs from the recorded one. The first observation is turn 0,
    compared with the prompt around it.
    """
    rule: Callable[[str], str] = env.normalise if isinstance(env, Normalises) else str
    with boundary(EnvironmentFailed, "replay"):
        reply = await env.reset(seed)
        hashes = [observation_hash(rule(_prompt_text(p))) for p in (history.prompt, prompt_of(env, reply))]
    _compare(0, *hashes)
    for turn in history.turns:
        with boundary(EnvironmentFailed, "replay"):
            reply = await step(env, turn.answer.text)
            hashes = [observation_hash(rule(r.observation)) for r in (turn.reply, reply)]
        _compare(turn.t, *hashes)
    return reply


def _prompt_text(prompt: Sequence[Message]) -> str:
    return "\n".join(message.content for message in prompt)


def _compare(turn: int, expected: str, got: str) -> None:
    if expected != got:
        raise ReplayDesync(turn, expected, got)
