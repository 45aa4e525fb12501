"""The command in a turn's raw text, and the two grammars' words for placing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.environments.alfworld.grammars import move_to_put, parse_command, put_to_move, version
from agentloop.policies.scripted import scripted_turn
from agentloop.types import Usage
from occupancy.record.errors import MissingExtra

NAMES = st.builds("{} {}".format, st.text("abcdefgh", min_size=3, max_size=9), st.integers(1, 30))


@pytest.mark.parametrize(
    ("text", "command", "status"),
    [
        ("go to desk 1", "go to desk 1", "ok"),
        ("  look \n", "look", "ok"),
        ("Thought: the mug is hot\nAction: put mug 1 in/on desk 1", "put mug 1 in/on desk 1", "ok"),
        ("Action: look\nThought: no\nAction 2: inventory\nbecause", "inventory", "ok"),
        ("> go to bed 1", "go to bed 1", "ok"),
        ("I will look.\nlook", "look", "multiline"),
        ("<think>\nAction: open it?\nNo.\n</think>\n\ngo to desk 1", "go to desk 1", "ok"),
        ("It may be near.</think>look", "look", "ok"),
        ("<think>look</think>", "<think>look</think>", "ok"),
        ("", "", "empty"),
        (" \n\t", "", "empty"),
        ("Action:", "", "empty"),
    ],
)
def test_command_is_found(text: str, command: str, status: str) -> None:
    assert parse_command(text) == (command, status)


@given(st.text(max_size=200))
def test_command_is_one_line_without_margins(text: str) -> None:
    command, status = parse_command(text)
    assert command == command.strip()
    assert len(command.splitlines()) <= 1
    assert (status == "empty") == (command == "")


@given(thought=st.text(max_size=80), command=NAMES)
def test_last_action_line_wins_over_what_stands_before_it(thought: str, command: str) -> None:
    assert parse_command(f"{thought}\nAction: go to {command}") == (f"go to {command}", "ok")


@given(NAMES, NAMES)
def test_put_and_move_translate_there_and_back(thing: str, place: str) -> None:
    put, move = f"put {thing} in/on {place}", f"move {thing} to {place}"
    assert put_to_move(put) == move
    assert move_to_put(move) == put


@pytest.mark.parametrize(
    "command", ["go to desk 1", "take mug 1 from desk 1", "look", "", "put down", "heat a to b"]
)
def test_other_commands_are_the_same_in_both_grammars(command: str) -> None:
    assert put_to_move(command) == move_to_put(command) == command


@pytest.mark.parametrize(("text", "tokens"), [("look", 2), ("put mug 1 in/on desk 1", 9), ("", 1)])
def test_words_and_marks_counts_the_end_of_turn_too(text: str, tokens: int) -> None:
    assert scripted_turn(text).usage == Usage(tokens, "words-and-marks")


def test_a_package_without_its_metadata_is_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloop.environments.alfworld.grammars.installed_version", lambda name: "")
    with pytest.raises(MissingExtra, match="alfworld is not installed"):
        version("2.1.1")
