"""Our scorer and Search-R1's against cases made by hand, each with its reason."""

# ruff: noqa: RUF001 - dashes and quotation marks are what some cases are about
from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.environments.hotpotqa.scoring import gold_report, normalise, score_answer
from agentloop.environments.hotpotqa.search_r1 import (
    PROMPT_ANSWERS,
    extract_as_search_r1,
    normalise_as_search_r1,
    reward_as_search_r1,
    score_as_search_r1,
)

YES, NO = True, False
# answer, golds, exact match of ours, F1 of ours, Search-R1's match of the same answer, reason
ANSWERS: list[tuple[str, tuple[str, ...], bool, float, bool, str]] = [
    ("Paris", ("Paris",), YES, 1, YES, "the same text"),
    ("paris", ("Paris",), YES, 1, YES, "case does not count"),
    ("Paris.", ("Paris",), YES, 1, YES, "ASCII marks are deleted"),
    ("The Beatles", ("Beatles",), YES, 1, YES, "an article does not count"),
    ("Beatles, The", ("The Beatles",), YES, 1, YES, "wherever it stands"),
    ("a an the", ("",), NO, 0, YES, "both normalise to nothing: for us only the same text matches"),
    ("A", ("A",), YES, 1, YES, "a gold that is an article: the same text"),
    ("the", ("A",), NO, 0, YES, "another article than the gold"),
    ("...", ("!",), NO, 0, YES, "marks alone normalise to nothing"),
    ("", ("Paris",), NO, 0, NO, "an empty answer"),
    ("New  York\nCity", ("New York City",), YES, 1, YES, "runs of blanks are one"),
    ("twenty-one", ("twenty one",), NO, 0, NO, "a hyphen is deleted without a blank: twentyone"),
    ("twenty-one", ("twentyone",), YES, 1, YES, "and so equals the word without it"),
    ("1990-1995", ("1990–1995",), YES, 1, NO, "an en dash is a dash for us"),
    ("1990–1995", ("1990–1995",), YES, 1, YES, "the same dash is the same text for both"),
    ("1990—1995", ("1990-1995",), YES, 1, NO, "an em dash too"),
    ("47-0", ("47–0",), YES, 1, NO, "a score of the data, written with a hyphen"),
    ("O'Neal", ("O’Neal",), YES, 1, NO, "a curly apostrophe is an apostrophe for us"),
    ('"Heroes"', ("“Heroes”",), YES, 1, NO, "curly quotation marks"),
    ("-5 degrees", ("−5 degrees",), YES, 1, NO, "the minus sign is a dash for us"),
    ("５", ("5",), YES, 1, NO, "wide digits are digits for us (NFKC)"),
    ("ﬁlm", ("film",), YES, 1, NO, "a ligature is its letters for us (NFKC)"),
    ("Beyonce", ("Beyoncé",), NO, 0, NO, "accents are not folded: another name might be meant"),
    ("Beyoncé", ("Beyonce\u0301",), YES, 1, NO, "but one accent has one form for us (NFKC)"),
    ("Zurich Airport", ("Zürich Airport",), NO, 0.5, NO, "one word of two with the other spelling"),
    ("U.S.", ("US",), YES, 1, YES, "dots are deleted"),
    ("U.S.", ("United States",), NO, 0, NO, "no aliases"),
    ("yes", ("yes",), YES, 1, YES, "yes"),
    ("Yes, they are", ("yes",), NO, 0, NO, "yes has no partial credit, as in HotpotQA's evaluation"),
    ("no", ("yes",), NO, 0, NO, "no is not yes"),
    ("yes", ("yes sir",), NO, 0, NO, "an answer of yes has no partial credit either"),
    ("Barack Obama", ("Obama",), NO, 2 / 3, NO, "precision 1/2, recall 1"),
    ("Obama", ("Barack Obama",), NO, 2 / 3, NO, "precision 1, recall 1/2"),
    ("the the cat", ("cat",), YES, 1, YES, "articles next to each other"),
    ("theatre", ("atre",), NO, 0, NO, "an article inside a word stays"),
    ("Anna", ("nna",), NO, 0, NO, "a letter is not an article inside a word"),
    ("a-ha", ("aha",), YES, 1, YES, "marks go before articles: a-ha is one word"),
    ("a ha", ("aha",), NO, 0, NO, "a as a word is an article"),
    ("Vitamin A", ("Vitamin",), YES, 1, YES, "even where it is no article"),
    ("Paris", ("London", "Paris"), YES, 1, YES, "any of several golds"),
    ("Paris France", ("London", "Paris"), NO, 2 / 3, NO, "F1 is that of the best gold"),
    ("Paris", (), NO, 0, NO, "no gold at all"),
    ("1,000", ("1000",), YES, 1, YES, "a comma in a number is a mark"),
    ("1.5", ("15",), YES, 1, YES, "so is a decimal point: a quirk that both keep"),
    ("$100", ("100",), YES, 1, YES, "and a currency sign of ASCII"),
    ("€100", ("100",), NO, 0, NO, "but not another one"),
    ("new york new york", ("new york",), NO, 2 / 3, NO, "words count as often as they occur"),
    ("İstanbul", ("i̇stanbul",), YES, 1, YES, "lower case of a dotted I has two code points"),
]  # fmt: skip

P = f"{PROMPT_ANSWERS} Who?\n"
# prompt, response, golds, Search-R1's score, reason
WHOLE: list[tuple[str, str, tuple[str, ...], float, str]] = [
    (P, "<answer> Paris </answer>", ("Paris",), 1, "the last of three answers"),
    (P, "I do not know", ("Beijing",), 1, "no answer: the prompt's own example is scored"),
    (P, "I do not know", ("Paris",), 0, "which is wrong as a rule"),
    (P, "write <answer> and </answer> please", ("and",), 1, "after an invalid turn the words of the notice"),
    (P, "<information><answer>Rome</answer></information>", ("Rome",), 1, "an answer in a passage counts"),
    (P, "<answer>Paris</answer><information><answer>Rome</answer></information>", ("Paris",), 0,
     "and is the last one"),
    ("Who?\n", "<answer>Paris</answer>", ("Paris",), 0, "a single answer is taken for the prompt's"),
    ("Who?\n", "<answer>x</answer><answer>Paris</answer>", ("Paris",), 1, "two are enough"),
    ("Who?\n", "Paris", ("Paris",), 0, "no tag at all"),
    (P, "<answer>Paris", ("Paris",), 0, "an open tag is no answer: Beijing is scored"),
    (P, "<answer>Par\nis</answer>", ("Par is",), 1, "an answer may have lines"),
    (P, "<answer><answer>Paris</answer></answer>", ("Paris",), 0, "the inner tag is part of the answer"),
    (P, "<ANSWER>Paris</ANSWER>", ("Beijing",), 1, "tags are told by case: still the example"),
    (P, "<answer></answer>", ("the",), 1, "an empty answer equals a gold that normalises to nothing"),
    (P, "<answer>the</answer>", ("Paris",), 0, "but no other"),
]  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case[-1])
def test_answers(case: tuple[str, tuple[str, ...], bool, float, bool, str]) -> None:
    answer, golds, exact, f1, theirs, reason = case
    score = score_answer(answer, golds)
    assert score.exact == exact, reason
    assert math.isclose(score.f1, f1, abs_tol=1e-12), reason
    whole = score_as_search_r1(P, f"<answer>{answer}</answer>", golds)
    assert whole == float(theirs), reason


@pytest.mark.parametrize(("prompt", "response", "golds", "score", "reason"), WHOLE)
def test_search_r1_on_prompt_and_response(
    prompt: str, response: str, golds: tuple[str, ...], score: float, reason: str
) -> None:
    assert score_as_search_r1(prompt, response, golds) == score, reason


def test_there_are_at_least_forty_cases_each_with_its_reason() -> None:
    reasons = [case[-1] for case in (*ANSWERS, *WHOLE)]
    assert len(set(reasons)) == len(reasons) >= 40


def test_search_r1_rewards_an_episode_as_it_would_have_cut_it() -> None:
    turns = [
        ("<search>a</search> no", "<information>x</information>"),
        ("<answer>Paris</answer> or Rome", ""),
    ]
    assert reward_as_search_r1("Who?", turns, ["Paris"]) == 1.0
    assert reward_as_search_r1("Who?", turns[:1], ["Beijing"]) == 1.0
    behind = [("<search>a</search><answer>Paris</answer>", "")]
    assert reward_as_search_r1("Who?", behind, ["Paris"]) == 0.0, "behind the first </search> nothing is kept"


def test_no_answer_is_wrong_even_where_the_gold_is_nothing() -> None:
    assert score_answer(None, ["A"]) == score_answer(None, ["Paris"])
    assert not score_answer(None, ["A"]).exact


@given(st.text(), st.text())
def test_laws(answer: str, gold: str) -> None:
    ours = score_answer(answer, [gold])
    assert 0 <= ours.f1 <= 1
    assert score_answer(answer, [answer]).exact, "every text matches itself"
    assert not ours.exact or ours.f1 == 1


@given(st.text(st.characters(max_codepoint=127)), st.text(st.characters(max_codepoint=127)))
def test_on_plain_ascii_both_normalise_alike(answer: str, gold: str) -> None:
    assert normalise(answer) == normalise_as_search_r1(answer)
    if normalise(answer):
        theirs = score_as_search_r1(P, f"<answer>{answer}</answer>", [gold]) if "<" not in answer else None
        assert theirs in (None, float(score_answer(answer, [gold]).exact))


def test_extraction_takes_the_last_of_at_least_two() -> None:
    assert extract_as_search_r1("<answer>a</answer>") is None
    assert extract_as_search_r1("<answer>a</answer><answer> b </answer>") == "b"


def test_report_names_the_golds_that_strings_are_unfair_to() -> None:
    report = gold_report(
        ["The", "47–0", "Zürich", "Paris", "one two three four five six seven eight nine ten more"]
    )
    assert (report.golds, report.empty, report.folded) == (5, ("The",), ("47–0",))
    assert report.non_ascii == ("47–0", "Zürich")
    assert len(report.long) == 1
