"""What once went into training rows without a word: unclosed reasoning, disguised control tokens, silence."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
from families import TEMPLATES, codec, tokenizer_of
from test_render_families import saw, student, target_text, task, teacher
from tokenizers import normalizers

from agentloop.export.trainers import EXPORTERS
from agentloop.render import Codec, TraceMessage, bounded, codec_of, load, load_codec, render_trace
from agentloop.render import codec as codec_module
from agentloop.render.codec import decode
from occupancy.record.errors import DataError, InputError


def opens_think() -> Codec:
    tokenizer = copy.deepcopy(tokenizer_of("thinking"))
    tokenizer.chat_template = (TEMPLATES / "opens_think.jinja").read_text("utf-8")
    return codec_of(tokenizer)


@pytest.mark.parametrize(
    "turn",
    [
        "I look.\n</think>\n\ngo to desk 1",
        "<think>\nI look.\n</think>\n\ngo to desk 1",
        "</think>go to desk 1",
    ],
)
def test_reasoning_that_the_prompt_opens_is_opened_and_closed_once(turn: str) -> None:
    c = opens_think()
    messages = [task(), teacher(turn), saw("a pen"), student("take pen"), saw("done"), teacher(turn)]
    rows = render_trace(c, messages).rows
    assert len(rows) == 2
    for row in rows:
        text = decode(c, row.ids.tolist())
        last = text[text.rindex("<|im_start|>assistant") :]
        assert last.count("<think>") == last.count("</think>") == 1
        targets = decode(c, row.ids[row.targets].tolist())
        assert "<think>" not in targets
        assert targets.endswith("go to desk 1<|im_end|>")


@pytest.mark.parametrize("turn", ["go to desk 1", "a</think>b</think>c", "<think>a<think>b</think>c"])
def test_a_turn_that_leaves_the_opened_reasoning_open_is_refused_by_its_number(turn: str) -> None:
    with pytest.raises(DataError, match=r"t7: message 1: the template's prompt opens <think>"):
        render_trace(opens_think(), [task(), teacher(turn)], trace="t7")


def test_other_templates_open_nothing() -> None:
    assert codec("thinking").opened is None
    assert codec("chatml").opened is None


def disguised(name: str) -> Any:
    tokenizer = copy.deepcopy(tokenizer_of("chatml"))
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    for token in backend["added_tokens"]:
        token["normalized"] = True
    tokenizer._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(backend))
    tokenizer.backend_tokenizer.normalizer = getattr(normalizers, name)()
    return tokenizer


@pytest.mark.parametrize("normalizer", ["Lowercase", "NFKC"])
def test_tokenizers_that_normalise_text_into_control_tokens_are_refused(normalizer: str) -> None:
    with pytest.raises(InputError, match="as a control token, since it normalises"):
        codec_of(disguised(normalizer))


@pytest.mark.parametrize(
    ("normalizer", "text"), [("Lowercase", "<|IM_END|>"), ("NFKC", "\uff1c|im_end|\uff1e")]
)
def test_no_disguise_passes_where_the_check_at_loading_misses_it(
    monkeypatch: pytest.MonkeyPatch, normalizer: str, text: str
) -> None:
    monkeypatch.setattr(load, "_disguised", lambda control: ())
    c = codec_of(disguised(normalizer))
    with pytest.raises(DataError, match="into a control token"):
        render_trace(c, [task(f"see {text}"), teacher("go")])


@pytest.mark.parametrize("turn", ["", "  \n", "<think>hm</think>", "hm</think>\n", "<think>go"])
def test_a_turn_without_text_is_no_target_and_no_completion(turn: str) -> None:
    messages = [task(), teacher(turn), saw("b"), teacher("go")]
    rendered = render_trace(codec("chatml"), messages)
    assert rendered.kept == (3,)
    assert rendered.dropped == ((1, "empty"),)
    assert target_text("chatml", rendered.rows[-1]) == "go<|im_end|>"
    assert not render_trace(codec("chatml"), messages[:2]).rows
    (verl,) = EXPORTERS["verl"](messages, "t")
    (axolotl,) = EXPORTERS["axolotl"](messages, "t")
    assert [m["trainable"] for m in verl["messages"]] == [m["train"] for m in axolotl["messages"]]
    assert [m["train"] for m in axolotl["messages"]] == [False, False, False, True]
    (trl,) = EXPORTERS["trl"](messages, "t")
    assert trl["completion"] == [{"role": "assistant", "content": "go"}]
    (llamafactory,) = EXPORTERS["llamafactory"](messages, "t")
    assert llamafactory["conversations"][-1]["value"] == "go"
    assert not any(list(export(messages[:2], "t")) for export in EXPORTERS.values())


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no') }}", "fails on a question and an answer"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ nothing.at.all }}", "fails on a question"),
        ("{% for m in messages %}", "fails on a question"),
        ("<|im_start|>nobody<|im_end|>", "leaves out what the assistant says"),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
            "{% endfor %}{% endfor %}{% endfor %}",
            r"did not end in 0\.5 s",
        ),
    ],
)
def test_a_template_that_fails_or_loops_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, template: str, message: str
) -> None:
    monkeypatch.setattr(codec_module, "TEMPLATE_S", 0.5)
    tokenizer = copy.deepcopy(tokenizer_of("chatml"))
    tokenizer.chat_template = template
    with pytest.raises(InputError, match=message) as caught:
        codec_of(tokenizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "did not end in"),
        ("{{ 'a' * (messages | length * 99999999) }}", "wrote 100,000,"),
        (
            "{% set n = namespace(s='aaaa') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
            "GB of memory|did not end in|MemoryError",
        ),
    ],
)
def test_every_prompt_of_a_template_is_bounded(monkeypatch: pytest.MonkeyPatch, body: str, told: str) -> None:
    """A template that only some messages make loop, or write without end, is stopped; the thread goes on."""
    monkeypatch.setattr(codec_module, "TEMPLATE_S", 2.0)
    monkeypatch.setattr(bounded, "MOST_GB", 0.2)
    monkeypatch.setattr(bounded, "POLL_S", 0.01)
    tokenizer = copy.deepcopy(tokenizer_of("chatml"))
    trigger = "{% if messages[0]['content'] == 'loop' %}" + body + "{% endif %}"
    tokenizer.chat_template = trigger + tokenizer.chat_template
    hostile = codec_of(tokenizer)
    with pytest.raises(DataError, match=rf"t1: the chat template .*({told})"):
        render_trace(hostile, [TraceMessage("user", "loop", "task", False), teacher("go")], trace="t1")
    assert render_trace(hostile, [task("q"), teacher("go")]).rows


def test_a_call_that_ends_in_time_is_not_stopped_later() -> None:
    for _ in range(3):
        with pytest.raises(bounded.TooMuch, match=r"did not end in 0\.01 s"):
            bounded.bounded(lambda: sum(1 for _ in iter(int, 1)), seconds=0.01)
        assert bounded.bounded(lambda: sum(range(100_000)), seconds=20) > 0
    with pytest.raises(ValueError, match="own"):
        bounded.bounded(lambda: int("own"), seconds=1)


def test_a_template_that_fails_later_names_the_trace() -> None:
    tokenizer = copy.deepcopy(tokenizer_of("chatml"))
    tokenizer.chat_template = tokenizer.chat_template + "{{ 1 / (9 - messages | length) }}"
    messages = [TraceMessage("user", "q", "task", False)] * 9
    with pytest.raises(DataError, match=r"t1: the chat template refuses the roles .*ZeroDivisionError"):
        render_trace(codec_of(tokenizer), [*messages, teacher("go")], trace="t1")


def test_a_tokenizer_is_a_folder_unless_the_hub_is_asked_for(tmp_path: object) -> None:
    with pytest.raises(InputError, match="'no/such' is no folder"):
        load_codec("no/such")
    with pytest.raises(InputError, match=r"--base .* has no tokenizer that can be loaded .* tokenizer\.json"):
        load_codec(str(tmp_path), of="--base")


def test_a_call_leaves_the_watcher_that_it_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads may each begin to watch: a call that stayed with one would be stopped after its end."""
    monkeypatch.setattr(bounded, "_watch", bounded._Watch(process=os.getpid()))
    first = bounded._watch
    later = bounded._Watch(process=os.getpid())
    bounded.bounded(lambda: monkeypatch.setattr(bounded, "_watch", later), seconds=1)
    assert not first.calls
