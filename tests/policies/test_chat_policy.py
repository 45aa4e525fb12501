"""The HTTP policy against a server that answers, fails and keeps its own bill."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from http_runs import RECIPE, collected
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import attempts, rows, run_of

from agentloop import retries
from agentloop.ledger.metered import ServerLost
from agentloop.policies.chat import ChatPolicy, read_answer, read_usage
from agentloop.policies.chat_spec import ChatSpec, address, identity, parse_chat
from agentloop.policies.tool_text import calls_in, offered_tools, tool_messages, with_tools
from agentloop.retries import retry_after
from agentloop.run.collect import SpendingLimits
from agentloop.types import Answer, Ask, CallFailed, ContextOverflow, Message
from benchmarks.mock_server import Mock
from occupancy.record.calls import turn_text
from occupancy.record.errors import InputError, RunError
from occupancy.runs import open_run

KEY = "sk-a-very-secret-key-0123456789"
SPEC = ChatSpec("m", "http://127.0.0.1:1/v1")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_a_run_over_http_counts_what_the_server_counts(tmp_path: Path) -> None:
    mock = Mock()
    run = asyncio.run(collected(tmp_path / "run", mock, options=",token_ids=1,logprobs=1"))
    written = attempts(run)
    assert len(written) == mock.requests == mock.billed["calls"]
    assert sum(a["output_tokens"] for a in written) == mock.billed["output"]
    assert sum(a["prompt_tokens"] for a in written) == mock.billed["prompt"]
    assert {a["role"] for a in written} == {"student", "teacher"}
    turn = rows(run, "turns")[0]
    assert turn["logprob"] == -0.5 * turn["output_tokens"]
    trained = [m for t in rows(run, "traces") for m in json.loads(t["messages"]) if m["author"] == "student"]
    assert all(len(m["token_ids"]) > 2 for m in trained)


@pytest.mark.parametrize("same", [False, True])
def test_a_teachers_ids_are_kept_only_in_the_students_own_tokenizer(tmp_path: Path, same: bool) -> None:
    options = ",token_ids=1" + ",tokenizer=shared" * same
    run = asyncio.run(collected(tmp_path / "run", Mock(), options=options))
    spoken = [m for t in rows(run, "traces") for m in json.loads(t["messages"]) if m["author"] == "teacher"]
    assert spoken
    assert {"token_ids" in m for m in spoken} == {same}


def test_no_failure_of_the_server_is_lost_or_retried_by_the_client(tmp_path: Path) -> None:
    shares = dict.fromkeys(("busy", "server", "drop", "after", "malformed", "no_usage"), 0.04)
    mock = Mock(shares)
    patient = SpendingLimits(backoff_s=0, retries=20)
    run = asyncio.run(collected(tmp_path / "run", mock, spending=patient))
    written = attempts(run)
    assert len(written) == mock.requests, "one row a request: the client retries nothing"
    assert all(mock.told[name] for name in shares)
    by_kind = {kind: sum(a["failure"] == kind for a in written) for kind in ("rate_limit", "server")}
    assert by_kind == {"rate_limit": mock.told["busy"], "server": mock.told["server"] + mock.told["after"]}
    perhaps = [a for a in written if a["billed"] == "perhaps"]
    assert len(perhaps) == mock.told["drop"] + mock.told["after"] + mock.told["malformed"]
    silent = [a for a in written if a["usage"] == "local"]
    assert len(silent) == mock.told["no_usage"]
    assert all(a["output_tokens"] > 0 and a["prompt_tokens"] is None for a in silent)
    known = sum(a["output_tokens"] or 0 for a in written if a["usage"] == "reported")
    charged = sum(a["charged_tokens"] for a in written)
    assert known <= mock.billed["output"] <= charged
    assert not [e for e in rows(run, "episodes") if e["error"]]


def test_turns_end_at_the_benchmarks_stop_strings_and_keep_them() -> None:
    stop = ("</search>", "</answer>")
    ask = Ask((Message("user", "q", "task"),), 1, 5, None, "e")  # type: ignore[arg-type]
    asked = ChatPolicy(replace(SPEC, stop=1), stop=stop)._request(ask)
    assert (asked["stop"], asked["include_stop_str_in_output"]) == ([*stop], True)
    sent = [ChatPolicy(SPEC)._request(replace(ask, seed=seed))["seed"] for seed in (5, 2**31 + 6)]
    assert sent == [5, 6], "each turn's own seed, in 31 bits"
    for spec, tools in ((SPEC, ()), (replace(SPEC, stop=1), ({"type": "function"},))):
        assert "stop" not in ChatPolicy(spec, tools=tools, stop=stop)._request(ask)

    def read(text: str, reason: object) -> str:
        choice = {"message": {"content": text}, "finish_reason": "stop", "stop_reason": reason}
        return read_answer({"choices": [choice]}, replace(SPEC, stop=1)).text

    assert read("<search>x", "</search>") == read("<search>x</search>", "</search>") == "<search>x</search>"
    assert read("I think", 2) == read("I think", None) == "I think"
    with pytest.raises(InputError, match="inside a token"):
        parse_chat("openai:m@http://127.0.0.1:1/v1,stop=1,token_ids=1")


def test_nonsense_in_a_response_is_unknown_and_never_breaks_the_books() -> None:
    def answer(usage: object, **choice: object) -> Answer:
        whole = {"message": {"content": [{"text": "go"}, {"text": None}]}, "finish_reason": "stop"} | choice
        return read_answer({"choices": [whole], "usage": usage}, SPEC)

    for output in (10**30, -3, 3.5, "3", True, None):
        found = answer({"completion_tokens": output, "prompt_tokens": 10**30})
        assert (found.text, found.usage.output, found.usage.reported) == ("go", 2, False)
    tokens = [{"logprob": -1.0}, {"logprob": None}]
    assert answer(None, logprobs={"content": tokens}).logprob is None
    assert answer(None, logprobs={"content": tokens[:1]}).logprob == -1.0


def test_a_wait_may_be_a_date_and_a_long_one_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)
    monkeypatch.setattr(retries, "time", SimpleNamespace(time=now.timestamp))
    assert retry_after(format_datetime(now + timedelta(seconds=90), usegmt=True)) == 90
    assert [retry_after(told) for told in ("7", "2.5", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT")] == [
        7.0,
        2.5,
        None,
        None,
        0.0,
    ]

    async def busy(ask: Ask) -> Answer:
        raise CallFailed("later", kind="rate_limit", retry=True, billed="no", wait_s=86_400.0)

    with pytest.raises(ServerLost, match="asks to wait 86,400 s"):
        run_of(tmp_path / "run", RECIPE, teacher=busy)
    assert not rows(open_run(tmp_path / "run"), "traces")


def test_a_teacher_that_never_answers_is_no_result(tmp_path: Path) -> None:
    async def broken(ask: Ask) -> Answer:
        raise CallFailed("<html>", kind="malformed", retry=True, billed="perhaps")

    with pytest.raises(RunError, match=r"the teacher failed in all 4 episodes .*<html>"):
        run_of(
            tmp_path / "run",
            RECIPE,
            teacher=broken,
            tasks="2",
            spending=SpendingLimits(retries=1, backoff_s=0),
        )


def test_the_key_is_nowhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    mock = Mock({"server": 0.05, "drop": 0.05})
    asyncio.run(collected(tmp_path / "run", mock))
    assert mock.keys == {KEY}, "the key reaches the server and nothing else"
    mock.refuse_all = 401
    with pytest.raises(ServerLost, match=r"your key is \[key\]") as refused:
        asyncio.run(collected(tmp_path / "refused", mock))
    assert KEY not in str(refused.value) + repr(refused.value.__cause__)
    out = capfd.readouterr()
    assert KEY not in out.out + out.err
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes(), file


def test_a_lost_server_stops_the_run_and_no_failure_becomes_data(tmp_path: Path) -> None:
    mock = Mock({"drop": 1.0})
    with pytest.raises(ServerLost, match="bring its server back"):
        asyncio.run(collected(tmp_path / "run", mock, spending=SpendingLimits(retries=2, backoff_s=0)))
    run = open_run(tmp_path / "run")
    assert not rows(run, "episodes")
    # What was open when the run stopped was written down before its call, which may not have begun.
    failed = [a for a in attempts(run) if a["state"] == "failed"]
    assert failed
    assert {a["state"] for a in attempts(run)} <= {"failed", "lost"}
    assert len(failed) <= mock.requests <= len(attempts(run))


def test_context_overflow_and_filters_are_recorded_once(tmp_path: Path) -> None:
    mock = Mock({"overflow": 0.1, "filter": 0.1})
    run = asyncio.run(collected(tmp_path / "run", mock))
    episodes = rows(run, "episodes")
    ended = [e["status"] for e in episodes]
    assert ended.count("context") == mock.told["overflow"] > 0
    assert ended.count("teacher_failed") + ended.count("student_failed") == mock.told["filter"] > 0
    filtered = [a for a in attempts(run) if a["failure"] == "filtered"]
    assert all(a["output_tokens"] for a in filtered), "what a filter ate was billed, and is counted"


def test_a_hanging_call_is_given_up_and_perhaps_billed() -> None:
    async def main() -> CallFailed:
        server = await Mock({"hang": 1.0}).serve()
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        policy = ChatPolicy(parse_chat(f"openai:m@{base},timeout_s=0.2"))
        env: Any = None
        try:
            await policy(Ask((Message("user", "hi", "task"),), 1, 1, env))
        except CallFailed as error:
            return error
        finally:
            await policy.close()
            server.close()
        raise AssertionError("it answered")

    error = asyncio.run(main())
    assert (error.kind, error.retry, error.billed) == ("timeout", True, "perhaps")


@pytest.mark.parametrize(
    ("given", "output", "reasoning", "cached"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}, 9, 0, None),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 9,
                "total_tokens": 14,
                "completion_tokens_details": {"reasoning_tokens": 4},
                "prompt_tokens_details": {"cached_tokens": 3},
            },
            9,
            4,
            3,
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 9,
                "total_tokens": 18,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            13,
            4,
            None,
        ),
    ],
)
def test_usage_counts_reasoning_once(given: Any, output: int, reasoning: int, cached: int | None) -> None:
    usage = read_usage(given, "m")
    assert usage is not None
    assert (usage.output, usage.reasoning, usage.cached) == (output, reasoning, cached)


@pytest.mark.parametrize("given", [None, {}, {"completion_tokens": None}, {"completion_tokens": -1}, "no"])
def test_missing_usage_is_unknown_and_never_zero(given: Any) -> None:
    assert read_usage(given, "m") is None
    body = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": given}
    usage = read_answer(body, SPEC).usage
    assert usage.output == 1
    assert not usage.reported


@pytest.mark.parametrize(
    "body",
    ["", [], {}, None, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": None}]}],
)
def test_what_is_no_answer_is_a_failed_call(body: Any) -> None:
    with pytest.raises(CallFailed) as failed:
        read_answer(body, SPEC)
    assert (failed.value.kind, failed.value.billed) == ("malformed", "perhaps")


@given(
    said=st.sampled_from(["", "Look.", "a\n"]),
    values=st.lists(
        st.text(st.sampled_from('a"}{\\\n <>/')) | st.just("x} </tool_call>"), min_size=1, max_size=3
    ),
)
def test_an_end_tag_inside_arguments_ends_no_call(said: str, values: list[str]) -> None:
    calls = [("f", json.dumps({"text": value, "tag": "</tool_call>"})) for value in values]
    text = turn_text(said, calls)
    assert calls_in(text) == (said, calls)


def test_a_turn_that_repeats_itself_without_end_is_read_at_once() -> None:
    """Looking at every end tag, and at every blank before one, takes minutes for texts of this size."""
    begun = '<tool_call>\n{"name": "f", "arguments": {'
    for text in (begun + " " * 200_000, begun * 2000):
        assert calls_in(text) == (text, [])
    tags = "</tool_call>" * 20_000
    assert calls_in(f"{begun}}}{tags}") == (tags.removeprefix("</tool_call>"), [("f", "{")])


def test_tool_calls_become_text_and_text_becomes_tool_calls() -> None:
    raw = '{"query": "a  b",\n"n":1}'
    text = turn_text("Let me look.", [("search", raw), ("open", "{broken")])
    said, calls = calls_in(text)
    assert (said, calls) == ("Let me look.", [("search", raw), ("open", "{broken")])
    # A name that is no JSON string makes no call: the block stays text, and no later turn fails for it.
    for name in (r"a\x", "a\nb"):
        odd = f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
        assert calls_in(odd) == (odd, [])
    # Servers refuse every conversation with a call whose arguments are no JSON object.
    for wrong in ("{broken", "[1]", '"q"'):
        turn = turn_text("Let me look.", [("search", raw), ("open", wrong)])
        sent = tool_messages([Message("assistant", turn, "student"), Message("tool", "no", "environment")])
        assert sent == [{"role": "assistant", "content": turn}, {"role": "user", "content": "no"}]
    text = turn_text("Let me look.", [("search", raw), ("open", "{}")])
    context = [
        Message("user", "q", "task"),
        Message("assistant", text, "teacher"),
        Message("tool", "found <tool_call> here", "environment"),
        Message("assistant", "done", "teacher"),
        Message("tool", "late", "environment"),
    ]
    sent = tool_messages(context)
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "assistant", "user"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "search", "arguments": raw}
    assert [m.get("tool_call_id") for m in sent[2:4]] == ["call_0", "call_1"]
    body = {
        "choices": [
            {
                "message": {
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [{"function": {"name": "search", "arguments": raw}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"completion_tokens": 3},
    }
    answer = read_answer(body, replace(SPEC, thinking="keep"))
    assert answer.text.startswith("<think>hm</think>")
    assert raw in answer.text
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("openai:m", "names no server"),
        ("openai:m@ftp://h/v1", "expected http"),
        ("openai:m@https://u:secret@h/v1", "carries a user"),
        ("openai:m@https://h/v1?key=secret", "carries a user"),
        ("openai:m@http://h/v1,speed=3", "m has no setting 'speed'"),
        ("openai:m@http://h/v1,max_tokens=x", "expected a whole number"),
        ("openai:m@http://h/v1,max_tokens=0", "at least 1"),
        ("openai:@http://h/v1", "no model"),
    ],
)
def test_a_spec_that_cannot_be_used_says_why(spec: str, match: str) -> None:
    with pytest.raises(InputError, match=match) as refused:
        parse_chat(spec)
    assert "secret" not in str(refused.value)


def test_a_context_that_is_too_long_is_told_apart() -> None:
    from agentloop.policies.chat import _status_failure

    for status, told in (
        (400, '{"error":{"code":"context_length_exceeded"}}'),
        (400, "The input token count (218152) exceeds the maximum number of tokens allowed (65536)."),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 and 1024"),
        (422, "`inputs` must have less than 1024 tokens. Given: 1168"),
    ):
        assert isinstance(_status_failure(status, told, wait_s=None), ContextOverflow), told
    assert isinstance(_status_failure(400, "bad tool schema", wait_s=None), CallFailed)


def test_a_run_remembers_the_model_and_not_where_it_is_served() -> None:
    spec = (
        "openai:meta/llama:free@https://host.example:1/v1,max_tokens=5,timeout_s=3,key_env=K,temperature=.5"
    )
    assert identity(spec) == "openai:meta/llama:free,max_tokens=5,temperature=.5"
    assert address(spec) == "https://host.example:1/v1"
    assert identity(identity(spec)) == identity(spec)
    assert (identity("expert"), address("expert")) == ("expert", "")


def test_a_server_that_is_not_there_has_billed_nothing() -> None:
    async def main() -> CallFailed:
        policy = ChatPolicy(parse_chat("openai:m@http://127.0.0.1:9/v1"))
        env: Any = None
        with pytest.raises(CallFailed) as failed:
            await policy(Ask((Message("user", "hi", "task"),), 1, 1, env))
        await policy.close()
        return failed.value

    error = asyncio.run(main())
    assert (error.kind, error.retry, error.billed) == ("connection", True, "no")


def test_a_system_message_that_only_looks_like_offered_tools_is_left_alone() -> None:
    for tools in ("{", "[" * 100_000):
        system = with_tools("Act.", []).replace("\n</tools>", f"\n{tools}\n</tools>")
        context = (Message("system", system, "task"),)
        assert offered_tools(context) == ([], context)
