"""A student without a model: it follows the scripted expert and errs, more often after failures.

Its faults are those of a small language model here: a lapse, a loop, the wrong receptacle, giving up. Rates
rise with the number of failures among its last turns, so recovery is harder than keeping on, and a few
good turns by a teacher lower them again. The same context and seed give the same turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentloop.policies.scripted import scripted_turn
from agentloop.types import Answer, Ask, Message, Policy, PolicyFailed
from occupancy.record.specs import Count, NotNegative, Share, check

from .grammars import parse_command

GIVEN_UP = "inventory"
"""What a student that has given up plays to the end; it plays it for no other reason."""
IDLE = frozenset({GIVEN_UP, "look", "help"})
FAILED = "Nothing happens"
PLACED = re.compile(r"(go to |open |close |(?:take|put|move|heat|cool|clean) .+ (?:from|in/on|to|with) )(.+)")


@dataclass(frozen=True, slots=True)
class StudentSettings:
    """Rates are probabilities of a turn with no failure among the last `memory` turns.

    A failure is a turn that nothing came of, or that repeated the one before it.
    """

    lapse: Share = 0.06
    """A random admissible command."""
    wrong: Share = 0.08
    """The expert's command with another receptacle."""
    loop: Share = 0.06
    """The last command again."""
    quit: Share = 0.02
    """Giving up, for each failure."""
    off_track: NotNegative = 2.0
    """What each failure adds to the rates of the other errors, as a multiple of them."""
    memory: Count = 4
    """Turns that are looked back at."""

    def __post_init__(self) -> None:
        check(self, of="student")


def turns_in(context: Sequence[Message]) -> list[tuple[str, str]]:
    """(command, observation) of every turn of a context, the student's and the teacher's."""
    pairs = pairwise(context)
    return [(parse_command(a.content)[0], b.content) for a, b in pairs if a.role == "assistant"]


def failures(turns: Sequence[tuple[str, str]], *, memory: int) -> int:
    """How many of the last `memory` turns did nothing or repeated the one before."""
    commands = [None, *(command for command, _ in turns)]
    recent = [*zip(commands, turns, strict=False)][-memory:]
    return sum(FAILED in seen or command == before for before, (command, seen) in recent)


def choose(
    turns: Sequence[tuple[str, str]],
    advice: str | None,
    admissible: Sequence[str],
    settings: StudentSettings,
    rng: random.Random,
) -> str:
    """The command to play after `turns`; `advice` is the expert's command, None where the expert failed."""
    last = turns[-1][0] if turns else None
    if last == GIVEN_UP:
        return GIVEN_UP
    failed = failures(turns, memory=settings.memory)
    scale = 1 + settings.off_track * failed
    u = rng.random()
    if (u := u - settings.quit * failed) < 0:
        return GIVEN_UP
    if (u := u - settings.loop * scale) < 0 and last is not None:
        return last
    if advice is None or (u := u - settings.lapse * scale) < 0:
        return rng.choice([c for c in admissible if c not in IDLE] or list(admissible))
    if u < settings.wrong * scale:
        return elsewhere(advice, admissible, rng)
    return advice


def elsewhere(command: str, admissible: Sequence[str], rng: random.Random) -> str:
    """The command with another receptacle of the room, or itself where it has none or there is no other."""
    found = PLACED.fullmatch(command)
    places = [c.removeprefix("go to ") for c in admissible if c.startswith("go to ")]
    others = [place for place in places if found and place != found[2]]
    return f"{found[1]}{rng.choice(others)}" if found and others else command


def scripted_student(settings: StudentSettings) -> Policy:
    """A policy that plays what `choose` says; the command is the whole text of its turn."""

    async def play(ask: Ask) -> Answer:
        advice: str | None
        try:
            advice = await ask.env.ask("expert")
        except PolicyFailed:
            advice = None
        turns, admissible = turns_in(ask.context), await ask.env.ask("admissible")
        return scripted_turn(choose(turns, advice, admissible, settings, random.Random(ask.seed)))

    return play
