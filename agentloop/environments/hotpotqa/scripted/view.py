"""What a scripted policy sees: the question with its golds, the turns so far, and what can be read in them.

A teacher knows which paragraphs hold the answer, but must find them: a gold title counts once it was among
the passages of a search, and an answer can be given honestly once it occurs in what was shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..actions import Action
from ..questions import Question
from ..retrieval.passages import Passage
from ..scoring import normalise

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Step:
    """One turn of an episode."""

    action: Action
    passages: tuple[Passage, ...]
    """What was found; the observation may hold less of each."""
    observation: str


@dataclass(frozen=True, slots=True)
class View:
    """An episode before its next turn."""

    question: Question
    steps: tuple[Step, ...]
    turns: int
    """T_max."""
    format: str

    @property
    def last(self) -> bool:
        """Whether the turn to be played is the last."""
        return len(self.steps) + 1 >= self.turns

    @property
    def queries(self) -> list[str]:
        """Every query so far."""
        return [step.action.content for step in self.steps if step.action.kind == "search"]

    def shown(self) -> list[str]:
        """Titles of all passages so far, first seen first."""
        return list(dict.fromkeys(p.title for step in self.steps for p in step.passages))

    def missing(self) -> list[str]:
        """Gold titles that no search has found yet, those that the question names first."""
        shown = set(self.shown())
        named = sorted(self.question.gold_titles, key=lambda title: -named_in(title, self.question.text))
        return [title for title in named if title not in shown]

    def new_golds(self) -> list[str]:
        """Gold titles that the last turn found first."""
        if not self.steps:
            return []
        before = {p.title for step in self.steps[:-1] for p in step.passages}
        now = {p.title for p in self.steps[-1].passages}
        return [title for title in self.question.gold_titles if title in now - before]

    def readable(self) -> bool:
        """Whether the answer occurs in an observation; for yes and no, whether both golds were found."""
        golds = {normalise(gold) for gold in self.question.golds}
        if golds & {"yes", "no"}:
            return not self.missing()
        text = " ".join(f" {normalise(step.observation)} " for step in self.steps)
        return any(f" {gold} " in text for gold in golds if gold)

    def wasted(self, memory: int) -> int:
        """How many of the last `memory` turns found no new gold title."""
        ends = range(max(0, len(self.steps) - memory) + 1, len(self.steps) + 1)
        return sum(not replace(self, steps=self.steps[:end]).new_golds() for end in ends)


def words_of(text: str) -> list[str]:
    """Words in lower case."""
    return _WORD.findall(text.lower())


def named_in(title: str, question: str) -> float:
    """Fraction of a title's words that occur in the question; what is in brackets does not count."""
    words = words_of(title.partition(" (")[0])
    asked = set(words_of(question))
    return sum(word in asked for word in words) / max(len(words), 1)
