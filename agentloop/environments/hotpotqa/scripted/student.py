"""A student without a model: it searches and answers, and errs as a small language model does.

It searches with the whole question, follows a passage that is irrelevant, repeats a query, answers before it
has read both passages, reads badly, forgets a tag. It can name the second paragraph only once it has read the
first, unless the question names both. Turns that found nothing new raise its rates, so recovery is harder
than keeping on. The same context and seed give the same turn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from agentloop.policies.scripted import scripted_turn
from agentloop.types import Answer, Ask, Policy
from occupancy.record.specs import Count, NotNegative, Share, check

from ..actions import write_turn
from . import wording
from .teacher import guess, query_for
from .view import View, named_in
from .wording import say


@dataclass(frozen=True, slots=True)
class StudentSettings:
    """Rates are probabilities of a turn when none of the last `memory` turns was wasted."""

    vague: Share = 0.35
    """The whole question as the query, where a title could have been named."""
    astray: Share = 0.15
    """A search for a passage that was shown and is irrelevant."""
    repeat: Share = 0.05
    """The last query again."""
    hasty: Share = 0.15
    """An answer before both gold paragraphs were found."""
    misread: Share = 0.15
    """Another passage's title for an answer, with the right one before its eyes."""
    malformed: Share = 0.05
    """A turn without an action."""
    late: Share = 0.1
    """A search in the last turn, in spite of the notice."""
    off_track: NotNegative = 0.75
    """What each wasted turn adds to the rates, as a multiple of them."""
    memory: Count = 2
    """Turns that are looked back at."""

    def __post_init__(self) -> None:
        check(self, of="student")


def scripted_student(settings: StudentSettings) -> Policy:
    """A policy that plays what `stumble` says."""

    async def play(ask: Ask) -> Answer:
        view: View = await ask.env.ask("view")
        return scripted_turn(stumble(view, settings, random.Random(ask.seed)))

    return play


def stumble(view: View, settings: StudentSettings, rng: random.Random) -> str:
    """The student's turn."""
    scale = 1 + settings.off_track * view.wasted(settings.memory)

    def errs(rate: float) -> bool:
        return rng.random() < rate * scale

    if errs(settings.malformed):
        return say(rng, wording.MALFORMED[view.format], query=view.question.text)
    if view.last and not errs(settings.late):
        return _answer(view, settings, rng, misread=errs(settings.misread))
    missing = view.missing()
    if not missing or (view.steps and errs(settings.hasty)):
        return _answer(view, settings, rng, misread=errs(settings.misread))
    query = view.question.text
    others = [title for title in view.shown() if title not in view.question.gold_titles]
    if view.queries and errs(settings.repeat):
        query = view.queries[-1]
    elif others and errs(settings.astray):
        query = rng.choice(others)
    elif _can_name(view, missing[0]) and not errs(settings.vague):
        query = query_for(view, missing[0], rng)
    return write_turn(say(rng, wording.PLAIN), "search", query, format=view.format)


def _can_name(view: View, title: str) -> bool:
    """Whether the student has met a title: in the question, or in what it has read about the other one."""
    return named_in(title, view.question.text) >= 0.5 or len(view.missing()) < len(view.question.gold_titles)


def _answer(view: View, settings: StudentSettings, rng: random.Random, *, misread: bool) -> str:
    answer = guess(view, rng) if misread or not view.readable() else view.question.golds[0]
    return write_turn(say(rng, wording.SURE, answer=answer), "answer", answer, format=view.format)
