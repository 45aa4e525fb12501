"""Traces of verifiers 0.4, graphs of messages, as episodes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from occupancy.importers import formats_of, read_episodes
from occupancy.importers.episodes import ImportSettings
from occupancy.importers.rows import rows_of
from occupancy.record.errors import DataError

CALL = {"id": "c1", "type": "function", "name": "add", "arguments": '{"x":1}'}


def node(role: str, content: str | None, parent: int | None, *, sampled: bool = False, **more: Any) -> Any:
    message = {"role": role, "content": content, **more}
    return {"parent": parent, "message": message, "sampled": sampled, "token_ids": [1], "mask": [sampled]}


def record(**changes: Any) -> dict[str, Any]:
    """A rollout whose history was compacted after its first turn; the second path begins anew."""
    nodes = [
        node("system", "Add.", None),
        node("user", "1 and 2?", 0),
        node("assistant", None, 1, sampled=True, tool_calls=[CALL]),
        node("tool", "3", 2, tool_call_id="c1"),
        node("assistant", "It is 3.", 3, sampled=True),
        node("user", "(it was added)", 2),
        node("assistant", "As I said: 3.", 5),
        node("user", "Sure?", 6),
        node("assistant", "Yes.", 7, sampled=True),
    ]
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    trace = {
        "id": "t1",
        "task": {"type": "Sums", "data": {"idx": 0, "name": "sums#0"}},
        "agent": {"name": "player", "trainable": True},
        "tools": [],
        "nodes": nodes,
        "calls": [{"node": 2, "model": "small", "finish_reason": "tool_calls", "usage": usage}],
        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "short": {"score": 0.5, "weight": 0.5}},
        "errors": [],
    } | changes
    return {"id": "r1", "env": {}, "task": trace["task"], "traces": [trace]}


def read(folder: Path, given: Any, **settings: Any) -> list[Any]:
    file = folder / "traces.jsonl"
    file.write_text(json.dumps(given) + "\n")
    formats = formats_of([file])
    assert formats == {str(file): "verifiers"}
    return list(read_episodes(formats, settings=ImportSettings(author="teacher", **settings)))


def test_every_path_is_an_episode_and_no_turn_is_trained_on_twice(tmp_path: Path) -> None:
    whole, compacted = read(tmp_path, record())
    assert whole.prompt == (("system", "Add."), ("user", "1 and 2?"))
    assert [(t.text, t.observation, t.train) for t in whole.turns] == [
        ('<tool_call>\n{"name": "add", "arguments": {"x":1}}\n</tool_call>', "3", True),
        ("It is 3.", "", True),
    ]
    assert [t.train for t in compacted.turns] == [False, False, True]
    assert (whole.task_id, whole.R, whole.turns[0].output_tokens, whole.turns[0].model) == (
        "sums#0",
        0.75,
        4,
        "small",
    )


def test_a_bare_trace_an_error_and_an_agent_that_is_not_trained(tmp_path: Path) -> None:
    (trace,) = record()["traces"]
    assert len(read(tmp_path, trace)) == 2
    failed = read(tmp_path, record(errors=[{"type": "ProviderError", "message": "status\n410"}]))[0]
    assert (failed.R, failed.status, failed.error) == (None, "environment_error", "status\n410")
    judge = read(tmp_path, record(agent={"trainable": False}))
    assert not any(turn.train for episode in judge for turn in episode.turns)
    assert read(tmp_path, record(rewards={}))[0].R is None


def trace_of(**tokens: Any) -> dict[str, Any]:
    """One sampled turn, with what its node says of its tokens."""
    asked = node("user", "1 and 2?", None)
    said = node("assistant", "3", 0, sampled=True) | tokens
    call = {"node": 1, "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cached_input_tokens": 7}}
    return record(nodes=[asked, said], calls=[call])


def test_masks_and_weights_of_whole_turns_log_probabilities_and_ids_are_kept(tmp_path: Path) -> None:
    tokens = {"token_ids": [8, 9, 30, 31], "mask": [False, False, True, True], "logprobs": [-0.5, -0.25]}
    left_out: Counter[str] = Counter()
    (episode,) = read(tmp_path, trace_of(**tokens, advantages=[0.1]), left_out=left_out)
    (turn,) = episode.turns
    assert (turn.train, turn.token_ids, turn.cells) == (True, None, {"logprob": -0.75})
    assert (turn.prompt_tokens, turn.cached_tokens) == (12, 7)
    assert left_out == {"node field 'advantages'": 1, "sampled ids of a turn (--token-ids keeps them)": 1}
    (episode,) = read(tmp_path, trace_of(**tokens), token_ids=True)
    assert episode.turns[0].token_ids == (30, 31)
    (trace,) = rows_of([episode], environment="e")["traces"]
    assert json.loads(trace["messages"])[-1]["token_ids"] == [30, 31]
    for more, trains in (
        ({"mask": [False] * 4}, False),
        ({"loss_weights": {"ce": [0, 0, 0.0, 0]}}, False),
        ({"loss_weights": {"ce": [0, 0, 1.0, 1]}}, True),
    ):
        (episode,) = read(tmp_path, trace_of(**tokens | more))
        assert episode.turns[0].train is trains, more


def test_a_branch_has_its_own_tools_and_a_reward_that_is_missing_is_none(tmp_path: Path) -> None:
    given = trace_of()
    given["traces"][0]["tools"] = [{"name": "later"}]
    given["traces"][0]["nodes"][0]["tools"] = [{"name": "add"}]
    given["traces"][0]["rewards"]["right"] = None
    (episode,) = read(tmp_path, given)
    assert episode.prompt[0] == ("system", '<tools>\n{"name": "add"}\n</tools>')
    assert episode.R is None


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ({"mask": [True, True]}, "node 1: mask: expected one for each token id"),
        ({"token_ids": [1, 2], "mask": [True, False]}, "names the whole turn or nothing"),
        ({"token_ids": [-1]}, "token_ids: expected a list of numbers"),
        ({"loss_weights": {"ce": [0.5]}}, "expected 0 or 1 for the whole turn"),
        ({"loss_weights": {"ce": [1, 1]}}, "loss_weights 'ce': expected one for each"),
        (
            {"loss_weights": {"echo": [1, 1]}, "token_ids": [1, 2], "mask": [False, True]},
            "0 outside the mask",
        ),
    ],
)
def test_a_mask_that_no_table_can_hold_is_refused(tmp_path: Path, tokens: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read(tmp_path, trace_of(**tokens))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes": [node("user", "x", 3)]}, "node 0 has parent 3"),
        ({"rewards": {"a": {"score": 3, "weight": 1}}}, "its reward is 3"),
        ({"rewards": {"a": 1}}, "score, weight"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, changes: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        read(tmp_path, record(**changes))
