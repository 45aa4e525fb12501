"""Policies of a task that asks for hello in out.txt, for tests in two Pythons."""

from __future__ import annotations

from agentloop.environments.terminal.terminus.protocol import turn_text
from agentloop.policies.scripted import scripted_turn
from agentloop.types import Answer, Ask


async def student(ask: Ask) -> Answer:
    """Writes the wrong word, and says that it is done from turn 3 on."""
    keys = [("echo bye > out.txt\n", 1)] if ask.t == 1 else [("cat out.txt\n", 1)]
    return scripted_turn(turn_text("a", f"Turn {ask.t}.", keys, complete=ask.t > 2))


async def teacher(ask: Ask) -> Answer:
    """Writes the right word, and says that it is done."""
    done = "Current terminal state" in ask.context[-1].content or "hello" in ask.context[-2].content
    keys = [] if done else [("echo hello > out.txt\n", 1)]
    return scripted_turn(turn_text("a", "Write hello.", keys, complete=True))
