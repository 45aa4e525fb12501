"""What a hostile user, server or world gives is refused in one line, or stored so that all can read it."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import attempts, rows, run_of
from toy_world import Bounded, Corridor, Corridors, drunk, expert

from agentloop.commands.arguments import read_n
from agentloop.run.collect import Settings, SpendingLimits
from agentloop.run.evaluate import Evaluation, evaluate
from agentloop.types import Answer, Ask, CallFailed, Reply, Task
from analysis.cli import main
from occupancy.record.errors import BudgetStopped, DataError, InputError, RunError
from occupancy.record.prices import read_prices
from occupancy.record.recipe import preset
from occupancy.runs import open_run

RECIPE = preset("op-short", K=3, n=2, T_max=12)
LONE = "go \ud800 there"


def broken(*given: Any) -> Any:
    raise ZeroDivisionError("a bug in a user's function")


def test_lone_surrogates_are_the_same_visible_escape_in_contexts_tables_and_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server takes them and no tokenizer reads them: the next call, and the training, would fail."""
    pytest.importorskip("transformers")
    from families import codec

    from agentloop.render.traces import render_run

    step, asked = Corridor.step, []

    async def shouting(self: Corridor, text: str) -> Reply:
        return replace(await step(self, text), observation=f"\udfff {self.place}")

    async def student(ask: Ask) -> Answer:
        return replace(await drunk(ask), text=LONE) if ask.t == 1 else await drunk(ask)

    async def teacher(ask: Ask) -> Answer:
        asked.extend(m.content for m in ask.context)
        return replace(await expert(ask), text=LONE)

    monkeypatch.setattr(Corridor, "step", shouting)
    run = run_of(tmp_path / "run", RECIPE, student=student, teacher=teacher)
    assert {p["outcome"] for p in rows(run, "proposals")} == {"accepted"}, "a replay compares what is stored"
    assert asked
    assert all(text.encode() for text in asked)
    assert "go \\ud800 there" in {t["text"] for t in rows(run, "turns") if t["author"] == "teacher"}
    assert all(trace.rendered.rows for trace in render_run(run, codec("chatml")))


@pytest.mark.parametrize("place", ["psi", "phi", "switch_weights"])
def test_a_users_function_that_fails_stops_the_run_and_nothing_is_bought_twice(
    tmp_path: Path, place: str
) -> None:
    name = "test_collect_hostile:broken"
    weights = {"switch_weights": name} if place == "switch_weights" else {}
    recipe = replace(RECIPE, switch="weights") if weights else replace(RECIPE, **{place: name})
    with pytest.raises(RunError, match=f"'{name}' raised ZeroDivisionError: a bug"):
        run_of(tmp_path / "run", recipe, **weights)
    absent = replace(RECIPE, switch="weights") if weights else replace(RECIPE, **{place: "no_such:function"})
    with pytest.raises(InputError, match="cannot be imported"):
        run_of(tmp_path / "absent", absent, **dict.fromkeys(weights, "no_such:function"))
    assert not (tmp_path / "absent").exists(), "it is found out before anything is bought"


def test_counts_from_a_spreadsheet_are_read_and_senseless_ones_refused(tmp_path: Path) -> None:
    file = tmp_path / "n.csv"
    file.write_text("\ufefftask_id,n\ncorridor/1,3\n", "utf-8")
    assert read_n(str(file)) == {"corridor/1": 3}
    for content, told in ((b"\xff\xfe", "cannot be read"), (b"", "holds no row"), (b"a,n\n1,2\n", "columns")):
        file.write_bytes(content)
        with pytest.raises(InputError, match=told):
            read_n(str(file))
    none = {f"corridor/{i}": 0 for i in range(8)}
    with pytest.raises(InputError, match="0 proposals over 8 tasks"):
        run_of(tmp_path / "run", RECIPE, n_of_task=none)
    with pytest.raises(InputError, match="expected 1 to 10,000,000"):
        run_of(tmp_path / "run", replace(RECIPE, n=10**12))
    assert not (tmp_path / "run").exists()


def test_settings_that_cannot_be_are_refused_before_there_is_a_folder() -> None:
    with pytest.raises(InputError, match=r"seed=-5: expected a whole number"):
        Settings(recipe=RECIPE, student="s", teacher="t", tasks="1", seed=-5)
    with pytest.raises(InputError, match=r"--budget 0.5 on the axis inference: expected at least 1 token"):
        SpendingLimits(0.5)


def test_two_recipes_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They would share a folder, and one of them would be lost."""
    seams = ["--env", "toy_world:open_corridors", "--student", "drunk", "--teacher", "expert", "--tasks", "2"]
    recipes = ["--recipe", "op-short", "--recipe", "op-short", "--budget", "90"]
    assert main(["collect", *seams, *recipes, "--set", "T_max=12", "--out", str(tmp_path / "run")]) == 2
    assert "two of one name" in capsys.readouterr().err


def test_a_resume_with_another_recipe_names_what_was_changed(tmp_path: Path) -> None:
    run_of(tmp_path / "run", RECIPE)
    with pytest.raises(DataError, match="was started with K=3, now K=2"):
        run_of(tmp_path / "run", replace(RECIPE, K=2))
    run_of(tmp_path / "run", replace(RECIPE, name="another label"))


def test_a_bill_for_more_than_was_sent_stops_a_run_with_a_budget_of_money(tmp_path: Path) -> None:
    table = tmp_path / "prices.toml"
    table.write_text('currency = "USD"\n[models."*"]\ninput = 1\noutput = 1\n')

    async def dear(ask: Ask) -> Answer:
        answer = await expert(ask)
        return replace(answer, usage=replace(answer.usage, prompt=10**6))

    spending = SpendingLimits(3.0, axis="money", prices=read_prices(table))
    with pytest.raises(RunError, match="bills 1000000 prompt tokens where at most"):
        run_of(tmp_path / "run", RECIPE, teacher=Bounded(dear), spending=spending)
    assert [a for a in attempts(open_run(tmp_path / "run")) if a["prompt_tokens"] == 10**6], "it is counted"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"text": None}, "text is 'None'"),
        ({"usage": {"output": -5}}, "output is '-5'"),
        ({"usage": {"output": "12"}}, "output is '12'"),
        ({"usage": {"output": 2**40}}, "output is '1099511627776'"),
        ({"usage": {"prompt": 2.5}}, "prompt is '2.5'"),
        ({"finish_reason": "\ud800"}, "finish_reason is"),
        ({"token_ids": ("a",)}, "token_ids is"),
        ({"logprob": "x"}, "logprob is 'x'"),
        (None, "it returned a NoneType"),
    ],
)
def test_an_answer_that_is_none_fails_its_own_call_alone(
    tmp_path: Path, change: dict[str, Any] | None, told: str
) -> None:
    """It can be in no table: nothing of it is stored, others are, and its reservation does not block them."""

    async def odd(ask: Ask) -> Answer:
        answer = await expert(ask)
        if ask.order != 3:
            return answer
        if change is None:
            return None  # type: ignore[return-value]
        usage = replace(answer.usage, **change.get("usage", {}))
        return replace(answer, **change | {"usage": usage})

    run = run_of(tmp_path / "run", RECIPE, teacher=Bounded(odd), spending=SpendingLimits(5_000))
    failed = [e for e in rows(run, "episodes") if e["status"] == "teacher_failed"]
    assert len(failed) == 1
    assert told in failed[0]["error"]
    assert {a["state"] for a in attempts(run)} == {"settled", "lost"}
    assert [a["charged_tokens"] for a in attempts(run) if a["state"] == "lost"] == [Bounded.most]
    assert len(rows(run, "traces")) == 15


def test_a_spent_budget_ends_the_run_though_a_call_gave_nonsense(tmp_path: Path) -> None:
    async def odd(ask: Ask) -> Answer:
        return await expert(ask) if ask.order % 2 else None  # type: ignore[return-value]

    with pytest.raises(BudgetStopped):
        run_of(tmp_path / "run", RECIPE, teacher=Bounded(odd), spending=SpendingLimits(150), tasks="20")


@pytest.mark.parametrize(
    "change", [{"observation": 5}, {"parse_status": None}, {"state_id": "x"}, {"role": "narrator"}]
)
def test_a_reply_that_fits_no_table_is_an_error_of_the_world(
    tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Corridor.step

    async def odd(self: Corridor, text: str) -> Reply:
        return replace(await step(self, text), **change if self.length == 4 else {})

    monkeypatch.setattr(Corridor, "step", odd)
    (name,) = change
    episodes = rows(run_of(tmp_path / "run", RECIPE), "episodes")
    broken_ = [e for e in episodes if e["status"] == "environment_error"]
    assert {e["task_id"] for e in broken_} == {"corridor/2", "corridor/7"}
    assert all(f"{name} is" in e["error"] for e in broken_)


@pytest.mark.parametrize("ids", [("a", "b", "a"), ("a", ""), ("\ud800",)])
def test_every_task_has_an_id_of_its_own(tmp_path: Path, ids: tuple[str, ...]) -> None:
    class Named(Corridors):
        def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
            return [Task(name, "c", "train") for name in ids]

    settings = Evaluation("drunk", "3", 1)
    with pytest.raises(InputError, match="expected an id of its own"):
        run_of(tmp_path / "run", RECIPE, worlds=Named())
    with pytest.raises(InputError, match="expected an id of its own"):
        asyncio.run(evaluate(tmp_path / "run", settings, environments=Named(), policy=drunk))
    assert not (tmp_path / "run").exists()


KEYS = ("content", "function", "name", "arguments", "logprob", "text", "cached_tokens", "reasoning_tokens")
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2**40), st.floats(), st.sampled_from(["", "x", "length"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(KEYS), inner)),
    max_leaves=6,
)
WHOLE: dict[str, Any] = {
    "error": None,
    "choices": [
        {
            "message": {"content": "go", "reasoning": None, "tool_calls": None},
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": [1, 2],
            "logprobs": {"content": [{"logprob": -1.0}]},
        }
    ],
    "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "prompt_tokens_details": {}},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(p for key, part in inner for p in places(part, (*path, key)))]


@given(place=st.sampled_from(places(WHOLE)[1:]), odd=JSON, thinking=st.sampled_from(["keep", "drop"]))
def test_a_response_with_anything_anywhere_is_an_answer_or_a_failed_call(
    place: tuple[Any, ...], odd: Any, thinking: str
) -> None:
    from agentloop.ledger import store
    from agentloop.policies.chat import read_answer
    from agentloop.policies.chat_spec import ChatSpec

    response = copy.deepcopy(WHOLE)
    inner: Any = response
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    try:
        answer = read_answer(response, ChatSpec("m", "http://h/v1", thinking=thinking))
    except CallFailed:
        return
    assert store.read_answer(store._answer_json(answer)) == answer
    assert 0 <= answer.usage.reasoning <= answer.usage.output
    assert all(type(i) is int and 0 <= i < 2**31 for i in answer.token_ids or ())
    assert answer.logprob is None or math.isfinite(answer.logprob)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("openai:m@http://h/v1,temperature=nan", "temperature='nan'"),
        ("openai:m@http://h/v1,top_p=0", "top_p='0'"),
        ("openai:m@http://h/v1,timeout_s=inf", "timeout_s='inf'"),
        ("openai:m@http://[::1/v1", "base URL of m is none"),
        ("openai:m@http://h:999999/v1", "base URL of m is none"),
        ("openai:m@https://h/v1#secret", "a fragment"),
    ],
)
def test_a_server_or_a_number_that_cannot_be_is_no_failure_of_the_model(spec: str, told: str) -> None:
    from agentloop.policies.chat_spec import parse_chat

    with pytest.raises(InputError, match=told.replace(".", r"\.")) as refused:
        parse_chat(spec)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["sk-f\u00fcr-1", "sk-one\nsk-two"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_told(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop.policies.chat import ChatPolicy
    from agentloop.policies.chat_spec import parse_chat

    monkeypatch.setenv("ODD_KEY", key)
    with pytest.raises(InputError, match="the key in ODD_KEY holds a line break or") as refused:
        ChatPolicy(parse_chat("openai:m@http://h/v1,key_env=ODD_KEY"))
    assert not {"sk", "one", "\u00fc"} & set(str(refused.value).replace("-", " ").split())


def test_an_argument_object_is_written_as_json() -> None:
    from agentloop.policies.chat import read_answer
    from agentloop.policies.chat_spec import ChatSpec

    call = {"function": {"name": "search", "arguments": {"query": "it's"}}}
    body = {"choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    assert '"arguments": {"query": "it\'s"}}' in read_answer(body, ChatSpec("m", "http://h/v1")).text


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's advice
def test_turns_of_a_megabyte_pass_over_http(tmp_path: Path) -> None:
    from http_runs import collected

    from benchmarks import mock_server

    mock = mock_server.Mock()
    play = mock_server.play
    long = "x" * 10**6

    def talkative(body: dict[str, Any]) -> tuple[str, list[int]]:
        text, ids = play(body)
        return (long if body["model"] == "teacher" else text), ids

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mock_server, "play", talkative)
        patch.setenv("OPENAI_API_KEY", "k")
        run = asyncio.run(collected(tmp_path / "run", mock))
    assert {t["text"] for t in rows(run, "turns") if t["author"] == "teacher"} == {long}
    assert len(attempts(run)) == mock.requests
