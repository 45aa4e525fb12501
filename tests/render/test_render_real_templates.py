"""Rendering under the templates that real models have, alone and against the package `renderers`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_templates import FAMILIES, SPEAKERS, real_codec, real_tokenizer
from trace_messages import saw, student, task, teacher

from agentloop.render import Codec, TraceMessage, TrainingRow, render_trace
from agentloop.render.codec import decode
from occupancy.record.errors import DataError

ROOT = Path(__file__).parents[2]
MADE = ROOT / ".venv-validators" / "bin" / "python"
VALIDATORS = os.environ.get("FEWSTEPS_VALIDATORS", str(MADE) if MADE.exists() else "")
"""A Python that has renderers and tokenizers, from `make validators`."""
CALL = '<tool_call>\n{"name": "go", "arguments": {"to": "desk 1"}}\n</tool_call>'


def targets(codec: Codec, row: TrainingRow) -> str:
    return decode(codec, row.ids[row.targets].tolist())


def whole(codec: Codec, row: TrainingRow) -> str:
    return decode(codec, row.ids.tolist())


def test_what_the_template_writes_before_every_answer_is_learnt() -> None:
    """GLM 4.5 answers after an empty block of reasoning, gpt-oss in a channel: no prompt gives these."""
    turns = [task(), student("look"), saw("a desk"), teacher("go"), saw("ok"), teacher("stop")]
    glm, harmony = real_codec("glm-4.5"), real_codec("gpt-oss")
    (row,) = render_trace(glm, turns).rows
    assert targets(glm, row) == "\n<think></think>\ngo<|user|>\n<think></think>\nstop<|user|>"
    rows = render_trace(harmony, turns).rows
    said = [targets(harmony, row) for row in rows]
    assert said == [f"<|channel|>final<|message|>{text}<|return|>" for text in ("go", "stop")]
    assert "<|message|>go<|end|>" in whole(harmony, rows[1])


def test_a_turn_with_reasoning_of_its_own_gets_no_empty_block() -> None:
    codec = real_codec("glm-4.5")
    (row,) = render_trace(codec, [task(), teacher("\n<think>hm</think>\ngo")]).rows
    assert targets(codec, row) == "\n<think>hm</think>\ngo<|user|>"


def test_a_trace_that_ends_with_a_call_stops_for_its_reply() -> None:
    """A continuation of K turns ends before the reply, which GLM 4.5 announces with another token."""
    codec = real_codec("glm-4.5")
    for turns in ([task(), teacher(CALL)], [task(), teacher(CALL), saw("ok", "tool"), teacher(CALL)]):
        (row,) = render_trace(codec, turns).rows
        assert targets(codec, row).count("<|observation|>") == len(turns) // 2
        assert row.ids[-1] == codec.control["<|observation|>"]


def test_roles_that_are_no_special_tokens_stay_text_in_messages() -> None:
    codec = real_codec("deepseek-v3")
    turn = teacher("<think>\nhm\n</think>\n\nstop")
    told = f"a page {SPEAKERS[1]} says {SPEAKERS[0]}go away"
    (row,) = render_trace(codec, [task(), student("look"), saw(told), turn]).rows
    count = row.ids.tolist().count
    assert count(codec.control[SPEAKERS[0]]) == count(codec.control[SPEAKERS[1]]) == 2
    assert told in whole(codec, row)


def test_a_reply_cannot_end_its_own_block() -> None:
    codec = real_codec("qwen2.5")
    (row,) = render_trace(
        codec, [task(), teacher(CALL), saw("a</tool_response>b", "tool"), teacher("x")]
    ).rows
    assert "a</tool_response>b" in whole(codec, row)
    assert codec.plain.token_to_id("<tool_call>") in row.ids[row.targets]


def test_messages_that_the_template_would_drop_are_refused() -> None:
    with pytest.raises(DataError, match=r"writes nothing of messages by \['tool'\]"):
        render_trace(real_codec("gemma4"), [task(), student("look"), saw("a desk", "tool"), teacher("go")])


def test_reasoning_in_the_text_is_written_once_where_the_template_reads_it_beside_the_text() -> None:
    codec = real_codec("qwen3.8")
    for thought in ("<think>\nhm\n</think>\n\n", "hm\n</think>\n\n"):
        turns = [task(), student(f"{thought}look"), saw("a desk"), teacher(f"{thought}go")]
        (row,) = render_trace(codec, turns).rows
        assert whole(codec, row).count("<think>") == whole(codec, row).count("</think>") == 2
        assert targets(codec, row) == "hm\n</think>\n\ngo<|im_end|>"


def test_a_block_is_opened_where_this_prompt_opens_one() -> None:
    """DeepSeek's template opens reasoning after a question and not after a tool's reply."""
    codec = real_codec("deepseek-v3")
    turn = "<think>\nhm\n</think>\n\ngo"
    (row,) = render_trace(codec, [task(), student("look"), saw("a desk", "tool"), teacher(turn)]).rows
    assert targets(codec, row) == turn + codec.closing


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3.6", "qwen3.8", "nemotron-3", "nemotron-3.5"])
def test_a_thinking_model_learns_turns_without_reasoning_only_under_a_prompt_that_says_so(name: str) -> None:
    turns = [task(), teacher("go")]
    with pytest.raises(DataError, match="set enable_thinking = false"):
        render_trace(real_codec(name), turns)
    (row,) = render_trace(real_codec(name, False), turns).rows
    assert targets(real_codec(name, False), row) == "go<|im_end|>"
    assert "</think>" in whole(real_codec(name, False), row)


EMPTY, SHUT = "<think>\n\n</think>\n\n", "<think></think>"
COMPARED = {
    # (family, thinking): settings of theirs, what the prompt gives and they train on all the same
    ("qwen3", True): ({}, ""),
    ("qwen3-vl", False): ({}, ""),
    ("qwen3.5", True): ({"enable_thinking": True}, "<think>\n"),
    ("qwen3.5", False): ({"enable_thinking": False}, EMPTY),
    ("qwen3.6", True): ({"enable_thinking": True}, "<think>\n"),
    ("qwen3.6", False): ({"enable_thinking": False}, EMPTY),
    ("qwen3.8", True): ({"enable_thinking": True, "reasoning_effort": "xhigh"}, "<think>\n"),
    ("qwen3.8", False): ({"enable_thinking": False}, EMPTY),
    ("nemotron-3", True): ({}, "<think>\n"),
    ("nemotron-3", False): ({"enable_thinking": False}, SHUT),
    ("nemotron-3-ultra", True): ({}, "<think>\n"),
    ("nemotron-3-ultra", False): ({"enable_thinking": False}, SHUT),
    ("nemotron-3.5", True): ({}, "<think>\n"),
    ("nemotron-3.5", False): ({"enable_thinking": False}, SHUT),
    ("glm-4.5", True): ({}, ""),
    ("glm-4.5", False): ({"enable_thinking": False}, SHUT),
    ("llama-3", False): ({}, ""),
    ("gemma4", False): ({}, ""),
}
ONE_ROLE = {("qwen3.5", False): "tool", ("qwen3.6", False): "tool", ("gemma4", False): "user"}
"""Gemma's template drops a tool's reply without a structured call; without reasoning `renderers` keeps the
empty block in turns before the last question, which the templates of Qwen3.5 and Qwen3.6 take out."""
words = st.sampled_from(
    ["go to desk 1", "take book 2", '{"a": 1}', "é∂🙂", "7  8", "a\n\nb", CALL, f"I go.\n{CALL}"]
)

replies = words | st.text(st.sampled_from("ab .:{}<>/'\"\\\n\té"), max_size=12)


@pytest.fixture(scope="module")
def theirs() -> Iterator[Callable[..., Any]]:
    """Asks the package `renderers`, in its own Python."""
    with subprocess.Popen(
        [VALIDATORS, str(ROOT / "tests" / "answer_as_renderers.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stdin, stdout = child.stdin, child.stdout
        made = {
            name: {"tokenizer": real_tokenizer(name).backend_tokenizer.to_str(), "eos": FAMILIES[name].eos}
            for name, _ in COMPARED
        }
        stdin.write(json.dumps(made) + "\n")

        def ask(**question: Any) -> Any:
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        yield ask
        stdin.close()


@st.composite
def conversations(draw: st.DrawFn) -> tuple[bool, bool, list[str]]:
    """Whether there is a system message, and a tool that replies; then the texts, from the task on."""
    turns = draw(st.lists(st.tuples(replies, words), min_size=1, max_size=4))
    return draw(st.booleans()), draw(st.booleans()), [text for turn in turns for text in turn]


def structured(text: str, thought: str) -> dict[str, Any]:
    """An answer as `renderers` has it, with its calls and its reasoning apart."""
    said, call, _ = text.partition(CALL)
    message: dict[str, Any] = {"role": "assistant", "content": said.rstrip("\n") if call else text}
    if call:
        function = {"name": "go", "arguments": '{"to": "desk 1"}'}
        message["tool_calls"] = [{"type": "function", "id": "1", "function": function}]
    return message | ({"reasoning_content": thought} if thought else {})


@pytest.mark.skipif(not VALIDATORS, reason="FEWSTEPS_VALIDATORS names no Python with renderers")
@pytest.mark.parametrize(("name", "thinking"), COMPARED)
@given(conversation=conversations(), students=st.integers(0, 2))
def test_ids_and_targets_are_those_of_renderers(
    theirs: Callable[..., Any],
    name: str,
    thinking: bool,
    conversation: tuple[bool, bool, list[str]],
    students: int,
) -> None:
    settings, given_by_prompt = COMPARED[name, thinking]
    only_ours = "\n" if (name, thinking) == ("glm-4.5", True) else ""
    system, tool, texts = conversation
    role = ONE_ROLE.get((name, thinking), "tool" if tool else "user")
    codec, thought = real_codec(name, thinking), "hm" if thinking else ""
    before = FAMILIES[name].thought[0] + "hm" + FAMILIES[name].thought[1] if thinking else ""
    messages = [TraceMessage("system", "be brief", "task", False)] * system + [task(texts[0])]
    for at, text in enumerate(texts[1:]):
        if at % 2:
            messages.append(saw(text, role))
        else:
            last = at == len(texts) - 2
            messages.append((student if at // 2 < students and not last else teacher)(before + text))
    for row in render_trace(codec, messages).rows:
        trained = {span.message for span in row.spans if span.target}
        shown = messages[: max(trained) + 1]
        native = name in ("qwen3", "qwen3-vl")
        said = theirs(
            family=name,
            settings=settings | ({"date_string": date_of(codec)} if name == "llama-3" else {}),
            messages=[
                {"role": m.role, "content": m.content}
                if m.role != "assistant"
                else structured(m.content.removeprefix(before), thought)
                if native
                else {"role": "assistant", "content": m.content.removeprefix(before)}
                | ({"reasoning_content": thought} if thought else {})
                for m in shown
            ],
            trained=[int(i in trained) for i in range(len(shown))],
        )
        compare(codec, row, said, given_by_prompt * len(trained), only_ours * len(trained))


def compare(codec: Codec, row: TrainingRow, said: Any, given_by_prompt: str, only_ours: str) -> None:
    """Equal ids up to the last target; targets differ in what the prompt gives, and in nothing else."""
    ids, mine = row.ids.tolist(), row.targets.tolist()
    last = max(i for i, target in enumerate(said["targets"]) if target)
    assert last == len(ids) - 1
    if ids[-1] in (codec.control.get("<|user|>"), codec.control.get("<|observation|>")):
        # GLM 4.5 writes nothing after its last turn: they add its EOS, we what closes its other turns.
        assert said["ids"][last] == codec.control["<|endoftext|>"]
        said["ids"][last] = ids[-1]
    assert said["ids"][: last + 1] == ids
    differ = [(a, b, i) for a, b, i in zip(mine, said["targets"], ids, strict=False) if a != b]
    assert decode(codec, [i for a, _, i in differ if not a]) == given_by_prompt
    assert decode(codec, [i for a, _, i in differ if a]) == only_ours


def date_of(codec: Codec) -> str:
    """Today, as the template has it."""
    (row,) = render_trace(codec, [task(), teacher("x")]).rows
    return whole(codec, row).split("Today Date: ")[1].split("\n")[0]
