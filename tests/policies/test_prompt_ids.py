"""A prompt that grew with its episode is the prompt that the plain way makes from the whole context."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from families import FAMILIES, codec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop.policies.prompt_ids import PromptIds
from agentloop.render import Codec
from agentloop.render.codec import MARKS, decode, encode, encode_turn, marked
from agentloop.types import Ask, Message
from occupancy.record.errors import DataError

ENV: Any = None


def odd_ids(own: Codec, text: str) -> tuple[int, ...]:
    """One id a character: spells the text, and is not how it would be encoded."""
    return tuple(i for character in text for i in encode_turn(own, character))


def prompt(prompts: PromptIds, context: list[Message], episode: str = "e") -> list[int] | str:
    """The ids, or why there are none."""
    try:
        return prompts.of(Ask(tuple(context), 1, 0, ENV, episode))
    except DataError as error:
        return str(error)


def plain(own: Codec, context: list[Message]) -> list[int] | str:
    """By transformers' public method, turn by turn: sampled ids stay as long as their text is repeated."""
    mark = next(mark for mark in MARKS if not any(mark in m.content for m in context))
    chat = [{"role": m.role, "content": marked(own, m.content, mark)} for m in context]
    ids, done = [], "not begun"
    for i, message in enumerate([*context, Message("assistant", "", "student")]):
        if message.role != "assistant" or i == 0:
            continue
        try:
            text = own.tokenizer.apply_chat_template(chat[:i], tokenize=False, add_generation_prompt=True)
        except Exception as error:
            return str(error)
        if text.startswith(done):
            ids = ids + encode(own, text[len(done) :], mark).ids
        else:
            ids = encode(own, text, mark).ids
        if i < len(context):
            sampled = list(message.token_ids or ())
            known = set(own.control.values())
            while sampled and sampled[-1] in known and decode(own, sampled) != message.content:
                sampled.pop()
            same = message.token_ids is not None and decode(own, sampled) == message.content
            after = context[i + 1].role if i + 1 < len(context) else ""
            closing, closing_ids = own.closings.get(after, (own.closing, own.closing_ids))
            ids = [*ids, *(sampled if same else encode_turn(own, message.content)), *closing_ids]
            done = text + chat[i]["content"] + closing
    return ids


@st.composite
def episodes(draw: st.DrawFn, own: Codec) -> list[list[Message]]:
    """Contexts that are asked for one after the other under one name, most of them grown by a turn."""
    pieces = ["forward", " a\n\nb ", "é🙂", "{}", "", *own.control, "<think>\nhm\n</think>\n\n", *MARKS[:2]]
    texts = st.lists(st.sampled_from(pieces), max_size=3).map("".join)

    def turn() -> list[Message]:
        text = draw(texts)
        ids = odd_ids(own, text)
        given = [None, ids, (*ids, own.closing_ids[-1]), tuple(encode_turn(own, text + "x"))]
        replies = draw(st.sampled_from([["user"]] * 4 + [["tool"], ["tool", "tool"], ["user", "user"]]))
        return [
            Message("assistant", text, "student", draw(st.sampled_from(given))),
            *(Message(role, draw(texts), "environment") for role in replies),
        ]

    context = [Message("user", draw(texts), "task")]
    if draw(st.booleans()):
        context.insert(0, Message("system", draw(texts), "task"))
    asked = [list(context)]
    for what in draw(
        st.lists(st.sampled_from(["turn"] * 5 + ["jump", "more", "fork", "respelled"]), max_size=6)
    ):
        if what == "more":
            context = [*context, Message("user", draw(texts), "environment")]
        elif what == "fork":
            context = asked[draw(st.integers(0, len(asked) - 1))]
        elif what == "respelled":
            context = [replace(m, token_ids=None) for m in context]
        context = [*context, *(turn() if what != "more" else ()), *(turn() if what == "jump" else ())]
        asked.append(list(context))
    return asked


@pytest.mark.parametrize("family", sorted(FAMILIES))
@given(st.data())
@settings(max_examples=60)
def test_a_grown_prompt_is_that_of_the_plain_way(family: str, data: st.DataObject) -> None:
    own = codec(family)
    grown = PromptIds(own)
    for context in data.draw(episodes(own), label="contexts"):
        wanted = plain(own, context)
        for prompts in (grown, PromptIds(own)):
            got = prompt(prompts, context)
            if isinstance(wanted, str):
                assert isinstance(got, str)
                assert wanted in got
            else:
                assert got == wanted
                spelled = own.tokenizer.apply_chat_template(
                    [{"role": m.role, "content": m.content} for m in context],
                    tokenize=False,
                    add_generation_prompt=True,
                )
                assert isinstance(got, list)
                assert decode(own, got) == own.tokenizer.decode(
                    own.tokenizer.encode(spelled, add_special_tokens=False), skip_special_tokens=False
                )


def test_ids_of_another_tokenizer_are_not_fed_to_this_one() -> None:
    own, other = codec("chatml"), codec("turns")

    def after(ids: tuple[int, ...] | None) -> list[int] | str:
        context = [
            Message("user", "q", "task"),
            Message("assistant", "go to desk 1", "teacher", ids),
            Message("user", "o", "environment"),
        ]
        return prompt(PromptIds(own), context)

    assert after(odd_ids(other, "go to desk 1")[::-1]) == after(None)
    assert after(odd_ids(own, "go to desk 1")) != after(None)


def test_an_episode_that_was_forgotten_is_rendered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentloop.policies.prompt_ids.KEPT", 2)
    own = codec("chatml")
    prompts = PromptIds(own)
    context = [Message("user", "q", "task")]
    for _ in range(3):
        for episode in "abc":
            assert prompt(prompts, context, episode) == plain(own, context)
        context += [Message("assistant", "go", "student", odd_ids(own, "go")), Message("user", "o", "task")]
    assert len(prompts._kept) == 2
