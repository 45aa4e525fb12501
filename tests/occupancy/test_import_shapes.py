"""Shapes of training data that people have: each becomes the right turns, or one line that says why not."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.cli import main
from occupancy.runs import open_run

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "r"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALL = '{"name": "f", "arguments": {"a": 1}}'
OTHER = '{"name": "g", "arguments": {}}'
CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]


def said(speaker, text, of="role"):
    return {of: speaker, "content" if of == "role" else "value": text}


def sharegpt(*items):
    return {"conversations": [said(speaker, text, "from") for speaker, text in items]}


def called(*calls):
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def messages(*items, **more):
    return {"messages": [item if isinstance(item, dict) else said(*item) for item in items], **more}


READ = {
    # name: record, (text, observation) of each turn, how many are trained on
    "ms-swift calls": (
        messages(USER, ("tool_call", CALL), ("tool_response", "1"), ANSWER, tools=json.dumps([TOOL])),
        [(called(CALL), "1"), ("r", "")],
        2,
    ),
    "ms-swift calls after a text": (
        messages(
            USER, ("assistant", "I look."), ("tool_call", CALL), ("tool_call", OTHER), ("tool", "1"), ANSWER
        ),
        [("I look.\n" + called(CALL, OTHER), "1"), ("r", "")],
        2,
    ),
    "ms-swift mask": (
        messages(USER, said("assistant", "a") | {"loss_scale": 0.0}, USER, ANSWER),
        [("a", "q"), ("r", "")],
        1,
    ),
    "axolotl mask": (
        messages(USER, said("assistant", "a") | {"train_on_turn": False}, USER, ANSWER),
        [("a", "q"), ("r", "")],
        1,
    ),
    "ms-swift without images": (messages(USER, ANSWER, images=[], videos=None), [("r", "")], 1),
    "ChatGLM": (
        messages(USER, ("assistant", OTHER), ("observation", "1"), ANSWER),
        [(OTHER, "1"), ("r", "")],
        2,
    ),
    "tools of the system message": (
        messages({"role": "system", "content": "s", "tools": [TOOL]}, USER, ANSWER),
        [("r", "")],
        1,
    ),
    "LLaMA-Factory, several calls": (
        sharegpt(("human", "q"), ("function_call", f"[{CALL}, {OTHER}]"), ("observation", "1"), ("gpt", "r")),
        [(called(CALL, OTHER), "1"), ("r", "")],
        2,
    ),
    "LLaMA-Factory, reasoning before a call": (
        sharegpt(
            ("human", "q"), ("function_call", f"<think>hm</think>{CALL}"), ("observation", "1"), ("gpt", "r")
        ),
        [("<think>hm</think>\n" + called(CALL), "1"), ("r", "")],
        2,
    ),
    "LLaMA-Factory, a call that is none": (
        sharegpt(("human", "q"), ("function_call", "f(a=1)"), ("observation", "1"), ("gpt", "r")),
        [("f(a=1)", "1"), ("r", "")],
        2,
    ),
    "SWE-rebench": (
        {
            "instance_id": "i",
            "resolved": 1,
            "trajectory": [
                USER,
                said("assistant", "look") | {"tool_calls": CALLS},
                said("tool", "1"),
                ANSWER,
            ],
        },
        [("look\n" + called(CALL), "1"), ("r", "")],
        2,
    ),
    "KTO, wanted": ({"prompt": [USER], "completion": [ANSWER], "label": True}, [("r", "")], 1),
    "human and gpt as roles": (messages(("human", "q"), ("gpt", "r")), [("r", "")], 1),
}
REFUSED = {
    "KTO, unwanted": (
        {"prompt": [USER], "completion": [ANSWER], "label": False},
        "a row of KTO, whose `label` says",
    ),
    "OLMo's calls": (
        messages(
            USER, {"role": "assistant", "content": None, "function_calls": "f(a=1)"}, ("environment", "1")
        ),
        "message 2: what is said is in 'function_calls'",
    ),
    "Vercel": (messages({"role": "user", "parts": [{"type": "text", "text": "q"}]}, ANSWER), "is in 'parts'"),
    "SWE-agent's texts": (
        {"instance_id": "i", "trajectory": [{"role": "user", "text": "q"}, {"role": "ai", "text": "r"}]},
        "message 2: role 'ai'",
    ),
    "LangChain": (messages({"type": "human", "data": {"content": "q"}}), "message 1: role None"),
    "ms-swift images": (messages(("user", "<image>q"), ANSWER, images=["a.png"]), "images: only text"),
    "loss scale": (messages(USER, ANSWER | {"loss_scale": 0.5}), "loss_scale is 0.5: expected 0 or 1"),
    "Glaive": ({"system": "SYSTEM: s", "chat": "USER: q\n\nASSISTANT: r"}, "no known format"),
    "xLAM": ({"query": "q", "answers": "[]", "tools": "[]"}, "no known format"),
    "Gemini": ({"contents": [{"role": "user", "parts": [{"text": "q"}]}]}, "no known format"),
    "OpenAI batch": ({"custom_id": "a", "response": {"body": {"choices": []}}}, "no known format"),
    "server tools": (
        messages(USER, {"role": "assistant", "content": [{"type": "server_tool_use", "name": "s"}]}),
        "content part of type 'server_tool_use'",
    ),
}


def imported(file, out, *more):
    return main(["import", str(file), "--author", "teacher", "--task", "line", "--out", str(out), *more])


@pytest.mark.parametrize("name", READ)
def test_a_shape_is_read(name, tmp_path):
    record, turns, targets = READ[name]
    (tmp_path / "a.jsonl").write_text(json.dumps(record), "utf-8")
    assert imported(tmp_path / "a.jsonl", tmp_path / "run") == 0
    run = open_run(tmp_path / "run")
    assert [(t["text"], t["observation"]) for t in run.read("turns").to_pylist()] == turns
    assert sum(trace["target_turns"] for trace in run.read("traces").to_pylist()) == targets
    (episode,) = run.read("episodes").to_pylist()
    prompt = json.loads(episode["prompt"])
    assert prompt[-1]["content"] == "q"
    assert ("<tools>" in prompt[0]["content"]) == ("tools" in str(record))


@pytest.mark.parametrize("name", REFUSED)
def test_a_shape_is_refused_in_one_line(name, tmp_path, capsys):
    record, why = REFUSED[name]
    (tmp_path / "a.jsonl").write_text(json.dumps(record), "utf-8")
    assert imported(tmp_path / "a.jsonl", tmp_path / "run") == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert why in told.err
    assert not (tmp_path / "run").exists()


def test_a_label_may_be_the_reward(tmp_path):
    rows = [{"prompt": "q", "completion": "r", "label": label} for label in (True, False)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert imported(tmp_path / "a.jsonl", tmp_path / "run", "--reward", "label") == 0
    assert [e["R"] for e in open_run(tmp_path / "run").read("episodes").to_pylist()] == [1.0, 0.0]


def test_tables_have_trajectories_and_labels_too(tmp_path, capsys):
    record, turns, _ = READ["SWE-rebench"]
    pq.write_table(pa.Table.from_pylist([record]), tmp_path / "a.parquet")
    assert imported(tmp_path / "a.parquet", tmp_path / "run") == 0
    told = open_run(tmp_path / "run").read("turns").to_pylist()
    assert [(t["text"], t["observation"]) for t in told] == turns
    pq.write_table(pa.Table.from_pylist([REFUSED["KTO, unwanted"][0]]), tmp_path / "b.parquet")
    assert imported(tmp_path / "b.parquet", tmp_path / "other") == 2
    assert "a row of KTO" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        (sharegpt(("human", "q"), ("function_call", CALL), ("observation", "1"), ("gpt", "r")), 2),
        ({"instruction": "q", "input": "", "output": "r"}, 1),
        ({"query": "q", "response": "r", "history": [["a", "b"]]}, 2),
    ],
)
def test_tables_hold_what_lines_hold(row, turns, tmp_path):
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(json.dumps(row), "utf-8")
    said = []
    for file in ("a.parquet", "a.jsonl"):
        assert imported(tmp_path / file, tmp_path / f"run-{file}") == 0
        held = open_run(tmp_path / f"run-{file}").read("turns").to_pylist()
        said.append([(t["text"], t["observation"]) for t in held])
    assert said[0] == said[1]
    assert len(said[0]) == turns


def claude(kind, key, parent, **more):
    content = {"role": kind, "content": [{"type": "text", "text": key}]}
    return {"type": kind, "sessionId": "s", "uuid": key, "parentUuid": parent, "message": content} | more


def codex(item):
    return {"timestamp": "t", "type": "response_item", "payload": item}


def test_what_programs_write_into_sessions_is_no_turn(tmp_path):
    """A log may begin with a snapshot of files; an error of the server is told in the assistant's place."""
    log = [
        {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
        claude("user", "q", None),
        claude("assistant", "API Error: 529", "q", isApiErrorMessage=True),
        claude("user", "go on", "API Error: 529"),
        claude("assistant", "r", "go on"),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, log)), "utf-8")
    assert imported(tmp_path / "a.jsonl", tmp_path / "run") == 0
    assert [t["text"] for t in open_run(tmp_path / "run").read("turns").to_pylist()] == ["r"]
    (episode,) = open_run(tmp_path / "run").read("episodes").to_pylist()
    assert [m["content"] for m in json.loads(episode["prompt"])] == ["q", "go on"]


def test_codex_snapshots_are_left_out_and_searches_refused(tmp_path, capsys):
    begin = [
        {"timestamp": "t", "type": "session_meta", "payload": {"id": "s"}},
        codex({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}),
    ]
    answer = codex(
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "r"}]}
    )
    for name, item, code in (
        ("snapshot", {"type": "ghost_snapshot", "ghost_commit": {}}, 0),
        ("search", {"type": "web_search_call", "action": {"type": "search", "query": "x"}}, 2),
        ("screen", {"type": "computer_call_output", "output": {"type": "screenshot", "file_id": "x"}}, 2),
    ):
        lines = [*begin, codex(item), answer]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
        assert imported(tmp_path / f"{name}.jsonl", tmp_path / name) == code
    said = capsys.readouterr().err
    assert "line 3: a search by the provider" in said
    assert "content part of type 'screenshot': only text can be imported" in said, "never an empty reply"
