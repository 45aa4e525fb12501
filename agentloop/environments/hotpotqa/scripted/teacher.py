"""The scripted teacher: it knows the gold titles and supporting facts, and has to find and read them.

It looks up the gold paragraphs one after the other, says what it has read in them, and answers once it has
both. A paragraph that a search does not find is searched for again in other words. In the last turn it
answers with what it has: without the evidence that is a guess. What it plays depends on the context and
the turn's seed alone.
"""

from __future__ import annotations

import random
import re

from agentloop.policies.scripted import BoundedScript
from agentloop.types import Ask, Policy

from ..actions import write_turn
from ..scoring import normalise
from . import wording
from .view import View, named_in, words_of
from .wording import say

NAME = "teacher"
TRIES = 3
"""Searches for one title before the teacher answers without it, if it can."""
_WEAK = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at by did do does for from had has have he her his how in is it its of on or she "
        "that the their they this to was were what when where which who whom whose with",
    )
)


def scripted_teacher() -> Policy:
    """A policy that plays what `teach` says."""

    async def play(ask: Ask) -> str:
        view: View = await ask.env.ask("view")
        return teach(view, random.Random(ask.seed))

    return BoundedScript(play, most=512)


def teach(view: View, rng: random.Random) -> str:
    """The teacher's turn."""
    missing = view.missing()
    tried = tries_for(view, missing[0]) if missing else 0
    done = not missing or (view.readable() and tried >= TRIES)
    if done or view.last:
        return _answer(view, rng)
    title = missing[0]
    query = query_for(view, title, rng)
    if not view.steps:
        thought = say(rng, wording.BEGIN, title=title)
    else:
        thought = f"{_looking_back(view, rng)} {say(rng, wording.NEXT, title=title)}"
    return write_turn(thought, "search", query, format=view.format)


def query_for(view: View, title: str, rng: random.Random) -> str:
    """A query for a title, in words that were not tried yet: ever more of what is known about it."""
    plain = title.replace("(", "").replace(")", "")
    known = set(words_of(title)) | _WEAK
    asked = [word for word in words_of(view.question.text) if len(word) > 2 and word not in known]
    facts = [word for word in words_of(fact_of(view, title)) if len(word) > 2 and word not in known]
    hints = rng.sample(asked, min(len(asked), rng.randint(0, 2)))
    ways = [
        " ".join([plain, *hints]),
        plain,
        f"{plain} {plain}",
        " ".join([plain, *facts[:4]]),
        " ".join([plain, *asked]),
        " ".join([plain, *facts]),
    ]
    tried = set(view.queries)
    fresh = [query for query in ways if query not in tried]
    return fresh[0] if fresh else ways[-1]


def tries_for(view: View, title: str) -> int:
    """Queries so far that named the title."""
    wanted = set(words_of(title))
    return sum(wanted <= set(words_of(query)) for query in view.queries)


def fact_of(view: View, title: str) -> str:
    """A supporting sentence of a title; where none is known, one that was read and holds the answer."""
    for name, sentence in view.question.facts:
        if name == title:
            return sentence
    text = next((p.text for step in view.steps for p in step.passages if p.title == title), "")
    sentences = [part.strip() for part in text.split(". ") if part.strip()]
    holding = [s for s in sentences for gold in view.question.golds if normalise(gold) in normalise(s)]
    return next(iter(holding or sentences), "")


def guess(view: View, rng: random.Random) -> str:
    """An answer without evidence: yes or no, or the passage that the question's words name best."""
    if {normalise(gold) for gold in view.question.golds} & {"yes", "no"}:
        return rng.choice(("yes", "no"))
    titles = view.shown() or [" ".join(view.question.text.split()[-3:]).strip("?")]
    return max(titles, key=lambda title: named_in(title, view.question.text)).partition(" (")[0]


def _answer(view: View, rng: random.Random) -> str:
    if view.readable():
        compared = view.question.type == "comparison"
        answer, ways = view.question.golds[0], wording.COMPARED if compared else wording.ANSWER
    else:
        answer, ways = guess(view, rng), wording.GUESS
    thought = f"{_looking_back(view, rng)} {say(rng, ways, answer=answer)}".strip()
    return write_turn(thought, "answer", answer, format=view.format)


def _looking_back(view: View, rng: random.Random) -> str:
    """What the last turn found, in words."""
    if not view.steps:
        return ""
    if view.steps[-1].action.kind == "none":
        return say(rng, wording.NO_ACTION)
    read = [
        say(rng, wording.READ, title=title, fact=wording.shortened(fact))
        for title in view.new_golds()
        if (fact := fact_of(view, title))
    ]
    return " ".join(read) or say(rng, wording.NOTHING_NEW)
