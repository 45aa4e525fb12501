"""Is an answer right: exact match and F1, on the model's own words only.

Exact match compares normalised texts, as HotpotQA's own evaluation does (Yang et al. 2018): lower case,
without punctuation, without a, an, the, blanks made one. Ours also makes Unicode's dashes, quotation marks
and wide forms the plain ones, and two answers that normalise to nothing are equal only if they are the
same text. `search_r1` has the original's rules, for numbers that are to be compared with its.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_MARKS = str.maketrans("", "", string.punctuation)
_MINUS, _PRIMES = "\u2212", "\u00b4\u2032\u2033"
_CLOSED = ("yes", "no", "noanswer")


@dataclass(frozen=True, slots=True)
class Score:
    """How right an answer is, against the best of its golds."""

    exact: bool
    f1: float


def normalise(text: str) -> str:
    """The text that exact match and F1 compare."""
    folded = "".join(_fold(c) for c in unicodedata.normalize("NFKC", text).lower())
    return " ".join(ARTICLES.sub(" ", folded.translate(_ASCII_MARKS)).split())


def score_answer(answer: str | None, golds: Sequence[str]) -> Score:
    """Exact match and F1 of an answer; None (no answer was given) is wrong."""
    if answer is None:
        return Score(False, 0.0)
    exact = any(_same(answer, gold) for gold in golds)
    return Score(exact, 1.0 if exact else max((_f1(answer, gold) for gold in golds), default=0.0))


def _same(answer: str, gold: str) -> bool:
    left, right = normalise(answer), normalise(gold)
    return left == right and (left != "" or answer.strip().lower() == gold.strip().lower())


def _f1(answer: str, gold: str) -> float:
    """Overlap of words; yes and no have none with anything else, as in HotpotQA's evaluation."""
    left, right = normalise(answer), normalise(gold)
    if left != right and (left in _CLOSED or right in _CLOSED):
        return 0.0
    shared = (Counter(left.split()) & Counter(right.split())).total()
    return 2 * shared / (len(left.split()) + len(right.split())) if shared else 0.0


def _fold(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Pd" or character == _MINUS:
        return "-"
    return "'" if category in ("Pi", "Pf") or character in _PRIMES else character


@dataclass(frozen=True)
class GoldReport:
    """Golds that string comparison is unfair to."""

    golds: int
    empty: tuple[str, ...]
    """Normalise to nothing: "A", "The The"."""
    non_ascii: tuple[str, ...]
    """Hold characters that a model may write otherwise: é, an en dash."""
    folded: tuple[str, ...]
    """The part of those that our folding makes plain ASCII."""
    long: tuple[str, ...]
    """More than 10 words: rarely matched exactly."""


def gold_report(golds: Iterable[str]) -> GoldReport:
    """The normalisation report of a set of golds."""
    all_golds = list(golds)
    foreign = [gold for gold in all_golds if not gold.isascii()]
    return GoldReport(
        len(all_golds),
        tuple(gold for gold in all_golds if not normalise(gold)),
        tuple(foreign),
        tuple(gold for gold in foreign if normalise(gold).isascii()),
        tuple(gold for gold in all_golds if len(gold.split()) > 10),
    )
