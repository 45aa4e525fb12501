"""The round trip on the template shapes of real families: targets are exactly the teacher's tokens."""

from __future__ import annotations

import copy

import pytest
from families import FAMILIES, codec
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers
from trace_messages import saw, student, target_text, task, teacher

from agentloop.policies.token_policy import stop_ids
from agentloop.render import LengthRule, TraceMessage, TrainingRow, codec_of, render_trace
from agentloop.render.codec import decode
from occupancy.record.errors import DataError

REWRITES = {"thinking"}
TOOLS = {"chatml", "thinking", "tools", "headers", "endoftext"}
words = st.sampled_from(
    [
        "go to desk 1",
        "Beijing",
        "take book 2",
        "<answer> x </answer>",
        '{"a": "\\u00e9", "b":1}',
        "é∂🙂",
        "7  8",
    ]
)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceMessage]:
    """A task, student turns, then teacher turns; replies by the user role, which every template takes."""
    messages = [task(draw(words))]
    if draw(st.booleans(), label="system"):
        messages.insert(0, TraceMessage("system", draw(words), "task", False))
    for author in [*["student"] * draw(st.integers(0, 3)), *["teacher"] * draw(st.integers(1, 3))]:
        turn = student if author == "student" else teacher
        messages += [turn(draw(words)), saw(draw(words))]
    return messages


def full_render(family: str, messages: list[TraceMessage]) -> str:
    chat = [{"role": m.role, "content": m.content} for m in messages]
    return str(codec(family).tokenizer.apply_chat_template(chat, tokenize=False))


@pytest.mark.parametrize("family", FAMILIES)
@given(traces())
def test_targets_spell_the_teacher_and_what_closes_its_turns(
    family: str, messages: list[TraceMessage]
) -> None:
    rendered = render_trace(codec(family), messages)
    close = codec(family).closing
    wanted = [m.content + close for m in messages if m.train]
    assert "".join(target_text(family, row) for row in rendered.rows) == "".join(wanted)
    assert rendered.kept == tuple(i for i, m in enumerate(messages) if m.train)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - REWRITES))
@given(traces())
def test_ids_are_those_of_the_full_render(family: str, messages: list[TraceMessage]) -> None:
    """On templates that keep history, one row holds the trace, token for token."""
    (row,) = render_trace(codec(family), messages).rows
    whole = codec(family).tokenizer.encode(full_render(family, messages), add_special_tokens=False)
    assert whole[: len(row.ids)] == row.ids.tolist()
    assert not row.drift
    last = row.spans[-1].stop
    assert last == len(row.ids)
    assert [s.start for s in row.spans[1:]] == [s.stop for s in row.spans[:-1]]


@given(traces())
def test_rewritten_history_gives_one_row_a_turn_in_the_sampled_context(messages: list[TraceMessage]) -> None:
    """Each row is the prompt that generation would use, and the turn itself."""
    c = codec("thinking")
    messages = [
        TraceMessage(
            m.role, f"<think>\nhm\n</think>\n\n{m.content}" if m.train else m.content, m.author, m.train
        )
        for m in messages
    ]
    rendered = render_trace(c, messages)
    for row, i in zip(rendered.rows, rendered.kept, strict=True):
        chat = [{"role": m.role, "content": m.content} for m in messages[:i]]
        prompt = c.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        assert decode(c, row.ids.tolist()) == prompt + messages[i].content + c.closing
        first = int(row.targets.argmax())
        assert c.tokenizer.encode(prompt, add_special_tokens=False) == row.ids[:first].tolist()
        assert row.targets[first:].all()


def test_prefix_stable_tail_shares_a_row_under_a_thinking_template() -> None:
    """Turns after the last user message keep their reasoning there, and so share one row."""
    turn = "<think>\nlook\n</think>\n\ngo to desk 1"
    messages = [task(), teacher(turn), saw("desk", "tool"), teacher(turn), saw("pen", "tool"), teacher(turn)]
    rendered = render_trace(codec("thinking"), messages)
    assert len(rendered.rows) == 1
    assert target_text("thinking", rendered.rows[0]) == (turn + "<|im_end|>") * 3


@pytest.mark.parametrize("family", sorted(TOOLS))
def test_consecutive_tool_replies_render_as_the_template_renders_them(family: str) -> None:
    messages = [
        TraceMessage("system", "You help.", "task", False),
        task(),
        teacher("<tool_call>a</tool_call>"),
        saw("one", "tool"),
        saw("two", "tool"),
        teacher("done"),
    ]
    c = codec(family)
    chat = [{"role": m.role, "content": m.content} for m in messages[:-1]]
    prompt = c.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    whole = c.tokenizer.encode(f"{prompt}done{c.closing}", add_special_tokens=False)
    last = render_trace(c, messages).rows[-1].ids.tolist()
    assert last == whole
    assert (family in REWRITES) or full_render(family, messages).startswith(decode(c, last))
    assert prompt.index("one") < prompt.index("two")


@pytest.mark.parametrize("family", FAMILIES)
@given(st.data())
def test_control_tokens_in_content_stay_text(family: str, data: st.DataObject) -> None:
    c = codec(family)
    control = st.sampled_from(sorted(c.control))
    hostile = data.draw(
        st.lists(st.one_of(control, words), min_size=1, max_size=5).map(" ".join), label="seen"
    )
    spoken = data.draw(st.one_of(control, words), label="turn")
    plain = [task("q"), student("a"), saw("b"), teacher("x"), saw("c"), teacher("d")]
    evil = [task(hostile), student(spoken), saw(hostile), teacher(f"x{spoken}"), saw(hostile), teacher("d")]
    count = sum(int(np_in(row, c.control)) for row in render_trace(c, plain).rows)
    rows = render_trace(c, evil).rows
    assert sum(int(np_in(row, c.control)) for row in rows) == count
    assert decode(c, rows[-1].ids.tolist()).count(hostile.strip()) >= 2
    assert "".join(target_text(family, row) for row in rows) == f"x{spoken}{c.closing}d{c.closing}"


def np_in(row: TrainingRow, control: object) -> int:
    known = set(control.values())  # type: ignore[attr-defined]
    return sum(int(i) in known for i in row.ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_target_is_the_token_that_closes_the_turn(family: str) -> None:
    c = codec(family)
    (row,) = render_trace(c, [task(), teacher("go")]).rows
    expected = {"headers": "<|eot_id|>", "turns": "<end_of_turn>", "endoftext": "<|endoftext|>"}
    expected["speakers"] = "<|user|>"
    assert row.targets[-1]
    assert int(row.ids[-1]) == c.control[expected.get(family, "<|im_end|>")]


def test_a_turn_is_closed_by_the_speaker_that_follows_it_where_the_template_closes_none() -> None:
    """As in GLM 4.5, whose stop token is the first token of the next message."""
    reply = TraceMessage("tool", "found", "environment", False)
    rows = render_trace(codec("speakers"), [task(), student("a"), reply, teacher("b"), reply, teacher("c")])
    (row,) = rows.rows
    assert target_text("speakers", row) == "b<|observation|>c<|user|>"
    assert {codec("speakers").control[t] for t in ("<|user|>", "<|observation|>")} < stop_ids(
        codec("speakers")
    )


@pytest.mark.parametrize("family", ["headers", "turns"])
def test_no_row_starts_with_two_bos(family: str) -> None:
    """The template writes one, and the tokenizer would put another before it."""
    tokenizer = codec(family).tokenizer
    bos = tokenizer.bos_token_id
    assert tokenizer("x")["input_ids"][0] == bos
    (row,) = render_trace(codec(family), [task(), teacher("go")]).rows
    assert row.ids.tolist().count(bos) == 1
    assert row.ids[0] == bos
    doubled = copy.copy(tokenizer)
    doubled.chat_template = tokenizer.bos_token + tokenizer.chat_template
    with pytest.raises(DataError, match=r"t3: the row starts with two '<"):
        render_trace(codec_of(doubled), [task(), teacher("go")], trace="t3")


def test_ids_that_spell_another_text_than_the_template_wrote_are_refused() -> None:
    """A tokenizer that drops blanks in front of a text drops those of a turn, and not those in a whole."""
    tokenizer = copy.deepcopy(codec("chatml").tokenizer)
    tokenizer.backend_tokenizer.normalizer = normalizers.Strip(left=True, right=False)
    with pytest.raises(DataError, match=r"t4: the row's ids spell .* but the template wrote"):
        render_trace(codec_of(tokenizer), [task(), teacher("  go")], trace="t4")


def test_a_role_order_that_the_template_refuses_is_an_input_error() -> None:
    with pytest.raises(DataError, match="t9: the chat template refuses the roles"):
        render_trace(codec("turns"), [task(), task(), teacher("go")], trace="t9")


@given(traces(), st.integers(8, 80))
def test_a_head_cut_ends_with_a_whole_teacher_turn(messages: list[TraceMessage], limit: int) -> None:
    c = codec("chatml")
    whole = render_trace(c, messages)
    cut = render_trace(c, messages, rule=LengthRule(row_tokens=limit, overflow="head"))  # type: ignore[arg-type]
    assert cut.kept == whole.kept[: len(cut.kept)]
    for row in cut.rows:
        assert len(row.ids) <= limit
        assert row.ids.tolist() == whole.rows[0].ids[: len(row.ids)].tolist()
        assert row.ids[-1] == c.closing_ids[-1]
        assert row.targets[-1]
    assert set(cut.kept) | {i for i, _ in cut.dropped} == set(whole.kept)
