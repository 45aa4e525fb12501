"""A student without a model: it knows the reference command, and errs as a small language model does.

It forgets a part of the command, looks somewhere else, makes a file that nobody asked for, breaks the JSON,
repeats itself, or says too early that it is done. Turns that brought nothing raise its rates, so recovery is
harder than keeping on. The same context and seed give the same turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentloop.policies.scripted import scripted_turn
from agentloop.types import Answer, Ask, Message, Policy
from occupancy.record.specs import Count, NotNegative, Share, check

from ..episode import View
from ..tasks.nl2bash import typed
from ..terminus.protocol import parse_turn, turn_text
from .teacher import RUN_S, look_around

ELSEWHERE = ("ls -la /\n", "pwd\n", "ls -la /root\n", "df -h | head -3\n", "id\n")


@dataclass(frozen=True, slots=True)
class StudentSettings:
    """Rates are probabilities of a turn when none of the last `memory` turns was a failure."""

    blunder: Share = 0.25
    """The command with a part forgotten, where the whole was to be run."""
    astray: Share = 0.1
    """A look at something beside the point."""
    stray: Share = 0.04
    """A file that nobody asked for."""
    malformed: Share = 0.06
    """A turn that is no JSON."""
    repeat: Share = 0.05
    """The last commands again."""
    hasty: Share = 0.25
    """Saying that the task is complete after a command that did not solve it."""
    off_track: NotNegative = 0.75
    """What each failure adds to the rates, as a multiple of them."""
    memory: Count = 3
    """Turns that are looked back at."""

    def __post_init__(self) -> None:
        check(self, of="student")


def scripted_student(settings: StudentSettings) -> Policy:
    """A policy that plays what `stumble` says."""

    async def play(ask: Ask) -> Answer:
        view: View = await ask.env.ask("view")
        return scripted_turn(stumble(view, ask.context, settings, random.Random(ask.seed)))

    return play


def stumble(view: View, context: Sequence[Message], settings: StudentSettings, rng: random.Random) -> str:
    """The student's turn."""
    scale = 1 + settings.off_track * failures(context, memory=settings.memory)

    def errs(rate: float) -> bool:
        return rng.random() < rate * scale

    def looks() -> str:
        return rng.choice(ELSEWHERE) if view.typed else look_around(view)

    tried = any(keys not in (look_around(view), *ELSEWHERE) for keys in view.typed)
    done = view.solved or (tried and errs(settings.hasty))
    if errs(settings.malformed):
        return f"I will now run {view.reference[:40]} and see"
    if view.pending:
        return turn_text("I was asked to confirm.", "Confirm.", [], complete=True)
    if not view.at_prompt:
        plan, keys = "Interrupt the program.", "C-c"
    elif view.typed and errs(settings.repeat):
        plan, keys = "Try it again.", view.typed[-1]
    elif errs(settings.stray):
        plan, keys = "Write a note.", f"echo note > /note{rng.randrange(9)}\n"
    elif not view.typed or errs(settings.astray):
        plan, keys = "Look around.", looks()
    elif done:
        return turn_text("That looks right.", "Say so.", [], complete=True)
    else:
        whole = view.reference
        command = without_a_part(whole, rng) if errs(settings.blunder) else whole
        plan, keys = f"Run: {command}", typed(command)
    return turn_text("I read the screen.", plan, [(keys, RUN_S)])


def failures(context: Sequence[Message], *, memory: int) -> int:
    """How many of the last `memory` turns were no JSON, or repeated the one before."""
    turns = [message.content for message in context if message.role == "assistant"]
    recent = [*zip([None, *turns], turns, strict=False)][-memory:]
    return sum(turn == before or bool(parse_turn(turn).error) for before, turn in recent)


def without_a_part(command: str, rng: random.Random) -> str:
    """The command without one of its later words or its last stage; one that is left open by it is closed."""
    stages = re.split(r"\s+\|\s+", command)
    if len(stages) > 1 and rng.random() < 0.5:
        shorter = " | ".join(stages[:-1])
    else:
        words = command.split(" ")
        drop = rng.randrange(1, len(words)) if len(words) > 1 else 0
        shorter = " ".join(words[:drop] + words[drop + 1 :])
    # A quote or bracket without its partner would leave the shell waiting for more.
    balanced = all(shorter.count(mark) % 2 == 0 for mark in "'\"`")
    closed = shorter.count("(") == shorter.count(")")
    return shorter if shorter.strip() and balanced and closed and not shorter.endswith("\\") else "ls"
