"""Search-R1's scorer, quirks included, for numbers that are to be compared with Search-R1's.

It reads prompt and response as one text and takes the last <answer> of it, unless there is at most one:
its prompt was thought to hold one. Its prompt holds two, so the guard never fires: a rollout without an
answer is scored as the prompt's own example, "Beijing"; after an invalid turn as "and", from the words
that say what an action is; and an <answer> in a passage counts as the model's (Search-R1 at a14dc3a4,
verl_utils/qa_em; issue 79 there).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence

from .actions import STOP, cut_turn
from .scoring import ARTICLES

PROMPT_ANSWERS = "<answer> and </answer> <answer> Beijing </answer>"
"""All that the scorer sees of Search-R1's prompt besides the question."""

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def normalise_as_search_r1(text: str) -> str:
    """Lower case; ASCII punctuation deleted, nothing in its place; articles to a blank; blanks made one."""
    plain = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", plain).split())


def extract_as_search_r1(whole: str) -> str | None:
    """The last answer in prompt and response together; None where there are fewer than two."""
    answers: list[str] = _ANSWER.findall(whole)
    return answers[-1].strip() if len(answers) > 1 else None


def score_as_search_r1(prompt: str, response: str, golds: Sequence[str]) -> float:
    """1 where the answer matches a gold, else 0; prompt and response with all tags and observations.

    Source: Search-R1 at a14dc3a4, verl/utils/reward_score/qa_em.py.
    """
    answer = extract_as_search_r1(prompt + response)
    if answer is None:
        return 0.0
    return float(normalise_as_search_r1(answer) in map(normalise_as_search_r1, golds))


def reward_as_search_r1(question: str, turns: Iterable[tuple[str, str]], golds: Sequence[str]) -> float:
    """Search-R1's reward of an episode, given (text, observation) of each turn.

    Its prompt is represented by its two <answer> pairs and the question, in its order; it cuts a turn behind
    the first </search>, else the first </answer>.
    """
    response = "".join(cut_turn(text, STOP["tags"]) + observation for text, observation in turns)
    return score_as_search_r1(f"{PROMPT_ANSWERS} {question}\n", response, golds)
