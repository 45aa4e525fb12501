"""The scripted student's choices, without a game."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.environments.alfworld.student import (
    GIVEN_UP,
    StudentSettings,
    choose,
    elsewhere,
    failures,
    turns_in,
)
from agentloop.policies.scripted import settings_from
from agentloop.types import Message
from occupancy.record.errors import InputError

ADMISSIBLE = ("go to desk 1", "go to bed 1", "take mug 1 from shelf 1", "inventory", "look")
COMMANDS = st.sampled_from([*ADMISSIBLE, "open desk 1", "put mug 1 in/on desk 1"])
OBSERVATIONS = st.sampled_from(["Nothing happens.", "You arrive at loc 1."])
TURNS = st.lists(st.tuples(COMMANDS, OBSERVATIONS), max_size=8)
FAULTLESS = StudentSettings(lapse=0, wrong=0, loop=0, quit=0)


def test_settings_are_read_from_text() -> None:
    assert settings_from("scripted", StudentSettings) == StudentSettings()
    assert settings_from("scripted:lapse=0.2,memory=3", StudentSettings) == StudentSettings(
        lapse=0.2, memory=3
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("scripted:laps=0.1", "no setting 'laps'"),
        ("scripted:lapse=much", "'much': expected a number"),
        ("scripted:memory=1.5", "'1.5': expected a whole number"),
        ("scripted:lapse=1.5", "expected a number of at least 0, of at most 1"),
        ("scripted:lapse=nan", "expected a number of at least 0, of at most 1"),
        ("scripted:off_track=-1", "expected a number of at least 0"),
        ("scripted:memory=0", "expected a whole number of at least 1"),
        ("scripted:lapse=.1,lapse=.2", "given twice"),
    ],
)
def test_settings_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        settings_from(text, StudentSettings)


@given(TURNS, COMMANDS, st.integers(0, 2**63 - 1))
def test_a_turn_is_a_function_of_context_and_seed(
    turns: list[tuple[str, str]], advice: str, seed: int
) -> None:
    settings = StudentSettings(lapse=0.3, wrong=0.2, loop=0.2)
    played = {choose(turns, advice, ADMISSIBLE, settings, random.Random(seed)) for _ in range(3)}
    assert len(played) == 1


@given(TURNS, COMMANDS, st.integers(0, 99))
def test_without_faults_the_advice_is_followed(turns: list[tuple[str, str]], advice: str, seed: int) -> None:
    given_up = bool(turns) and turns[-1][0] == GIVEN_UP
    assert choose(turns, advice, ADMISSIBLE, FAULTLESS, random.Random(seed)) == (
        GIVEN_UP if given_up else advice
    )


@given(TURNS, st.integers(0, 99))
def test_without_advice_something_admissible_is_done(turns: list[tuple[str, str]], seed: int) -> None:
    assert choose(turns, None, ADMISSIBLE, FAULTLESS, random.Random(seed)) in ADMISSIBLE


def test_giving_up_lasts_until_somebody_else_plays() -> None:
    gone = [("go to bed 1", "Nothing happens."), (GIVEN_UP, "You are not carrying anything.")]
    assert choose(gone, "go to desk 1", ADMISSIBLE, FAULTLESS, random.Random(0)) == GIVEN_UP
    taught = [*gone, ("go to desk 1", "You arrive at loc 1.")]
    assert choose(taught, "look", ADMISSIBLE, FAULTLESS, random.Random(0)) == "look"


def test_errors_are_more_frequent_off_the_track() -> None:
    settings = StudentSettings(lapse=0.05, wrong=0.05, loop=0.05, quit=0.01, off_track=1.0)
    smooth = [("go to bed 1", "You arrive at loc 1."), ("open bed 1", "You open the bed 1.")]
    rough = [("go to bed 1", "Nothing happens."), ("go to bed 1", "Nothing happens.")]

    def followed(turns: list[tuple[str, str]]) -> int:
        return sum(
            choose(turns, "look", ADMISSIBLE, settings, random.Random(i)) == "look" for i in range(1000)
        )

    assert followed(smooth) > 800 > followed(rough)


def test_failures_are_counted_among_the_last_turns() -> None:
    turns = [("a", "Nothing happens."), ("b", "ok"), ("b", "ok"), ("c", "Nothing happens."), ("d", "ok")]
    assert [failures(turns, memory=m) for m in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]
    assert failures([], memory=4) == 0


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        ("go to desk 1", {"go to bed 1"}),
        ("put mug 1 in/on shelf 1", {"put mug 1 in/on bed 1", "put mug 1 in/on desk 1"}),
        ("move mug 1 to shelf 1", {"move mug 1 to bed 1", "move mug 1 to desk 1"}),
        ("open bed 1", {"open desk 1"}),
        ("look", {"look"}),
    ],
)
def test_the_wrong_receptacle_is_another_one_of_the_room(command: str, answers: set[str]) -> None:
    assert {elsewhere(command, ADMISSIBLE, random.Random(i)) for i in range(40)} == answers


def test_turns_are_read_from_the_context_whoever_played_them() -> None:
    context = (
        Message("system", "rules", "task"),
        Message("user", "a room", "environment"),
        Message("assistant", "Thought: hm\nAction: look", "teacher"),
        Message("user", "nothing", "environment"),
        Message("assistant", "inventory", "student"),
        Message("user", "empty", "environment"),
    )
    assert turns_in(context) == [("look", "nothing"), ("inventory", "empty")]
