"""Playing recorded turns again, with every observation checked."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from agentloop.episode import History
from agentloop.types import Environment, Message, Reply


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
    reply = await env.reset(seed)
    _compare(0, _prompt_text(history.prompt), _prompt_text(env.prompt(reply)))
    for turn in history.turns:
        reply = await env.step(turn.answer.text)
        _compare(turn.t, turn.reply.observation, reply.observation)
    return reply


def _prompt_text(prompt: Sequence[Message]) -> str:
    return "\n".join(message.content for message in prompt)


def _compare(turn: int, recorded: str, replayed: str) -> None:
    expected, got = observation_hash(recorded), observation_hash(replayed)
    if expected != got:
        raise ReplayDesync(turn, expected, got)
