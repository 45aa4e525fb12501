"""Written in a format and imported again, a conversation is the same; so is a run that was exported."""

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from toy_runs import run_of

from analysis.cli import main
from occupancy.importers import formats_of, read_episodes
from occupancy.importers.episodes import ImportSettings
from occupancy.record.calls import turn_text
from occupancy.record.recipe import preset
from occupancy.record.rows import storable
from occupancy.runs import open_run

SETTINGS = ImportSettings(author="teacher")
TEXT = st.text(max_size=20) | st.sampled_from(["</tool_call>", "<|im_end|>", "\n", "\r\n", "\u2028", " "])
ARGUMENTS = TEXT | st.sampled_from(['{"x": 1e3}', '{"x":1,"x":2}', '"caf\\u00e9"', "{broken", "{}"])
CALLS = st.lists(st.tuples(st.text("abcé_", min_size=1, max_size=5), ARGUMENTS), max_size=2)
TURNS = st.lists(st.tuples(TEXT, CALLS, TEXT), min_size=1, max_size=3)


def messages_of(turns):
    messages = [{"role": "user", "content": "q"}]
    for text, calls, reply in turns:
        called = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": given}}
            for i, (name, given) in enumerate(calls)
        ]
        messages.append({"role": "assistant", "content": text, **({"tool_calls": called} if called else {})})
        messages.append({"role": "tool" if called else "user", "content": reply})
    return messages


def chat(turns, folder):
    return text_file(folder / "a.jsonl", json.dumps({"task_id": "a", "messages": messages_of(turns)}) + "\n")


def chat_document(turns, folder):
    record = {"task_id": "a", "messages": json.dumps(messages_of(turns))}
    return text_file(folder / "a.json", json.dumps([record], ensure_ascii=True, indent=1))


def anthropic(turns, folder):
    messages = [{"role": "user", "content": "q"}]
    for text, _, reply in turns:
        messages.append({"role": "assistant", "content": [{"type": "text", "text": text}]})
        messages.append({"role": "user", "content": [{"type": "text", "text": reply}]})
    return text_file(folder / "a.jsonl", json.dumps({"task_id": "a", "messages": messages}))


def sharegpt(turns, folder):
    items = [{"from": "human", "value": "q"}]
    for text, _, reply in turns:
        items += [{"from": "gpt", "value": text}, {"from": "human", "value": reply}]
    return text_file(folder / "a.json", json.dumps({"task_id": "a", "conversations": items}))


def verifiers(turns, folder):
    first, *rest = messages_of(turns)
    record = {"task_id": "a", "prompt": [first], "completion": rest, "reward": 1.0}
    return text_file(folder / "a.jsonl", json.dumps(record))


def verifiers_graph(turns, folder):
    nodes = []
    for at, message in enumerate(messages_of(turns)):
        if message.get("tool_calls"):
            message["tool_calls"] = [{"id": c["id"], **c["function"]} for c in message["tool_calls"]]
        sampled = message["role"] == "assistant"
        nodes.append({"parent": at - 1 if at else None, "message": message, "sampled": sampled})
    trace = {"task": {"data": {"name": "a"}}, "nodes": nodes, "calls": [], "rewards": {}}
    return text_file(folder / "a.jsonl", json.dumps({"task": trace["task"], "traces": [trace]}))


def parquet(turns, folder):
    file = folder / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"task_id": "a", "messages": messages_of(turns)}]), file)
    return file


def atif(turns, folder):
    steps = [{"step_id": 1, "source": "user", "message": "q"}]
    for text, _, reply in turns:
        result = {"results": [{"content": reply}]}
        steps.append({"step_id": len(steps) + 1, "source": "agent", "message": text, "observation": result})
    document = {"schema_version": "ATIF-v1.7", "task_id": "a", "agent": {"name": "a"}, "steps": steps}
    return text_file(folder / "a.json", json.dumps(document))


def inspect(turns, folder):
    sample = {"id": "a", "epoch": 1, "messages": messages_of(turns)}
    return text_file(folder / "a.json", json.dumps({"eval": {"model": ""}, "samples": [sample]}))


def swe_agent(turns, folder):
    steps = [
        {
            "response": text,
            "observation": reply,
            "tool_calls": messages_of([(text, calls, reply)])[1].get("tool_calls"),
        }
        for text, calls, reply in turns
    ]
    document = {"trajectory": steps, "history": [], "info": {"exit_status": "submitted"}}
    return text_file(folder / "a.traj", json.dumps(document))


def mini_swe_agent(turns, folder):
    document = {"info": {"exit_status": "Submitted"}, "messages": messages_of(turns)}
    return text_file(folder / "a.traj.json", json.dumps(document))


def tau_bench(turns, folder):
    record = {"task_id": "a", "reward": 1.0, "trial": 0, "traj": messages_of(turns)}
    return text_file(folder / "a.json", json.dumps([record]))


def tau_2(turns, folder):
    simulation = {"task_id": "a", "trial": 0, "messages": messages_of(turns), "reward_info": {"reward": 1.0}}
    return text_file(folder / "a.json", json.dumps({"info": {}, "simulations": [simulation]}))


def trl(turns, folder):
    first, *rest = messages_of(turns)
    file = folder / "a.parquet"
    pq.write_table(pa.Table.from_pylist([{"task_id": "a", "prompt": [first], "completion": rest}]), file)
    return file


def alpaca(turns, folder):
    questions = ["q", *(reply for _, _, reply in turns[:-1])]
    *history, last = zip(questions, (text for text, _, _ in turns), strict=True)
    record = {"task_id": "a", "query": last[0], "response": last[1], "history": history}
    return text_file(folder / "a.json", json.dumps([record]))


def claude_code(turns, folder):
    said = [("user", "q")]
    for text, _, reply in turns:
        said += [("assistant", [{"type": "text", "text": text}]), ("user", reply)]
    lines = [
        {
            "uuid": f"u{i}",
            "parentUuid": f"u{i - 1}" if i else None,
            "sessionId": "a",
            "type": role,
            "message": {"role": role, "content": content, **({"id": f"m{i}"} if role == "assistant" else {})},
        }
        for i, (role, content) in enumerate(said)
    ]
    return text_file(folder / "a.jsonl", "\n".join(map(json.dumps, lines)))


def codex(turns, folder):
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "q"}]}]
    for text, calls, reply in turns:
        said = [{"type": "output_text", "text": text}]
        items.append({"type": "message", "role": "assistant", "content": said})
        items += [{"type": "function_call", "name": name, "arguments": given} for name, given in calls]
        answer = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": reply}]}
        items.append({"type": "function_call_output", "output": reply} if calls else answer)
    lines = [{"type": "session_meta", "payload": {"id": "a"}}]
    lines += [{"type": "response_item", "payload": item} for item in items]
    return text_file(folder / "a.jsonl", "\n".join(map(json.dumps, lines)))


def openhands_1(turns, folder):
    def spoken(source, role, text):
        said = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"kind": "MessageEvent", "source": source, "llm_message": said}

    events = [spoken("user", "user", "q")]
    for number, (text, calls, reply) in enumerate(turns):
        for name, arguments in calls:
            call = {"id": "c", "name": name, "arguments": arguments}
            thought = [{"type": "text", "text": text}]
            acted = {"kind": "ActionEvent", "source": "agent", "tool_call": call, "thought": thought}
            events.append(acted | {"llm_response_id": f"r{number}"})
        seen = {"kind": "Seen", "content": [{"type": "text", "text": reply}]}
        observed = {"kind": "ObservationEvent", "source": "environment", "observation": seen}
        events += [observed] if calls else [spoken("agent", "assistant", text), spoken("user", "user", reply)]
    record = {"instance_id": "a", "history": events}
    return text_file(folder / "a.jsonl", json.dumps(record))


def openhands_completion(turns, folder):
    *before, said, _ = messages_of(turns)
    (folder / "a").mkdir()
    record = {"messages": before, "response": {"choices": [{"message": said, "finish_reason": "stop"}]}}
    return text_file(folder / "a" / "completion.json", json.dumps(record))


def verl_rollouts(turns, folder):
    said = [("user", "q")]
    for text, _, reply in turns:
        said += [("assistant", text), ("user", reply)]
    parts = [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in said]
    record = {"task_id": "a", "input": parts[0], "output": "".join(parts[1:]), "score": 1.0, "step": 1}
    return text_file(folder / "a.jsonl", json.dumps(record))


def text_file(file, text):
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return file


WITH_CALLS = (
    *(chat, chat_document, verifiers, parquet, trl, inspect, swe_agent, mini_swe_agent, tau_bench, tau_2),
    *(codex, openhands_1, openhands_completion, verifiers_graph),
)
WITHOUT = (anthropic, sharegpt, atif, alpaca, claude_code, verl_rollouts)
WITHOUT_LAST_REPLY = (alpaca, openhands_completion)
"""Formats that end with the last answer."""


@pytest.mark.parametrize("writer", [*WITH_CALLS, *WITHOUT])
@given(turns=TURNS)
def test_what_was_said_comes_back_byte_for_byte(writer, turns):
    assume(writer is not verl_rollouts or "<|im_" not in str(turns))
    with TemporaryDirectory() as folder:
        file = writer(turns, Path(folder))
        (episode,) = read_episodes(formats_of([file]), settings=SETTINGS)
    calls = writer in WITH_CALLS
    wanted = [(turn_text(text, given if calls else []), reply) for text, given, reply in turns]
    if writer in WITHOUT_LAST_REPLY:
        wanted[-1] = (wanted[-1][0], "")
    assert [(turn.text, turn.observation) for turn in episode.turns] == wanted
    assert episode.task_id == "a"


@given(st.text(st.characters(codec=None, categories=None), max_size=8))
def test_lone_surrogates_become_visible(text):
    with TemporaryDirectory() as folder:
        file = chat([(text, [], "")], Path(folder))
        (episode,) = read_episodes(formats_of([file]), settings=SETTINGS)
    assert episode.turns[0].text == storable(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    return run_of(folder, preset("op-short", K=3, n=2, T_max=12))


NOT_IN_ATIF = ("wall_s", "phi", "recipe_hash")


def rows_without(run, table, *columns):
    return [{k: v for k, v in row.items() if k not in columns} for row in run.read(table).to_pylist()]


def test_a_run_exported_as_atif_is_the_same_run(run, tmp_path):
    assert main(["export", str(run.folder), "--format", "atif", "--out", str(tmp_path / "atif")]) == 0
    assert main(["import", str(tmp_path / "atif"), "--T-max", "12", "--out", str(tmp_path / "again")]) == 0
    again = open_run(tmp_path / "again")
    for table in ("episodes", "turns"):
        wanted = rows_without(run, table, *NOT_IN_ATIF)
        assert rows_without(again, table, *NOT_IN_ATIF) == wanted
    kinds = {row["kind"] for row in again.read("episodes").to_pylist()}
    assert "continuation" in kinds
    traces = [
        [(t["episode_id"], t["C_tr"], t["target_turns"]) for t in r.read("traces").to_pylist()]
        for r in (run, again)
    ]
    assert traces[0] == traces[1]


BY_MODEL = ("--author-of=student=student", "--author-of=teacher=teacher")


def test_a_run_exported_as_an_inspect_log_has_the_same_episodes(run, tmp_path):
    assert main(["export", str(run.folder), "--format", "inspect", "--out", str(tmp_path / "out")]) == 0
    log = str(tmp_path / "out" / "log.json")
    assert main(["import", log, *BY_MODEL, "--out", str(tmp_path / "again")]) == 0

    def episodes(of):
        said, found = {}, Counter()
        for turn in of.read("turns").to_pylist():
            said.setdefault(turn["episode_id"], []).append(
                (turn["author"], turn["text"], turn["observation"])
            )
        for row in of.read("episodes").to_pylist():
            before = said.get(row["parent"], [])[: row["length"] - len(said[row["episode_id"]])]
            played = before + said[row["episode_id"]]
            found[row["task_id"], row["R"], row["status"] == "horizon", *played] += 1
        return found

    assert episodes(open_run(tmp_path / "again")) == episodes(run)


@pytest.mark.parametrize("form", ["verl", "axolotl", "verifiers"])
def test_traces_exported_for_a_trainer_come_back_as_the_same_traces(run, tmp_path, form):
    more, back = [], []
    if form == "verifiers":
        pytest.importorskip("transformers", exc_type=ImportError)
        from families import tokenizer_of

        tokenizer_of("chatml").save_pretrained(tmp_path / "model")
        more, back = [f"--model={tmp_path / 'model'}"], [*BY_MODEL, "--token-ids"]
    assert main(["export", str(run.folder), "--format", form, *more, "--out", str(tmp_path / "out")]) == 0
    file = next(f for f in (tmp_path / "out").iterdir() if f.stem in ("train", "traces"))
    assert main(["import", str(file), *back, "--out", str(tmp_path / "again")]) == 0

    def traces(of):
        keys = ("role", "content", "author", "train")
        rows = of.read("traces").to_pylist()
        said = [json.loads(row["messages"]) for row in rows]
        return sorted(
            (
                row["task_id"],
                json.dumps([[m[k] for k in keys if k != "author" or m["role"] == "assistant"] for m in ms]),
            )
            for row, ms in zip(rows, said, strict=True)
        )

    again = open_run(tmp_path / "again")
    assert traces(again) == traces(run)
    if form == "verifiers":
        from agentloop.render import load_codec
        from agentloop.render.traces import render_run

        ids = [
            Counter(
                (r.key["task_id"], *row.ids.tolist(), *row.targets.tolist())
                for r in rendered
                for row in r.rendered.rows
            )
            for rendered in (list(render_run(of, load_codec(str(tmp_path / "model")))) for of in (run, again))
        ]
        assert ids[0] == ids[1]
        rewards = [Counter(row["R"] for row in of.read("episodes").to_pylist()) for of in (run, again)]
        assert rewards[1] <= rewards[0]
        said = [m for row in again.read("traces").to_pylist() for m in json.loads(row["messages"])]
        assert all(m.get("token_ids") for m in said if m["train"])


SAID = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.sampled_from(["go", "", "<think>only</think>", "stop here"]),
        "author": st.sampled_from(["student", "teacher"]),
        "weight": st.sampled_from([0, 1]),
        "finish_reason": st.sampled_from(["stop", "length", "odd"]),
    }
)


@given(st.lists(SAID, min_size=1, max_size=5))
def test_every_trace_of_an_import_renders(said):
    """Whatever is cut, empty, excluded or the student's: targets are the teacher's whole turns alone."""
    pytest.importorskip("transformers", exc_type=ImportError)
    from families import codec

    from agentloop.render.traces import render_run

    turns = [message for m in said for message in (m, {"role": "user", "content": "ok"})]
    record = {"task_id": "a", "messages": [{"role": "user", "content": "q"}, *turns]}
    with TemporaryDirectory() as folder:
        file = text_file(Path(folder) / "a.jsonl", json.dumps(record))
        assert main(["import", str(file), "--out", f"{folder}/run", "--json"]) == 0
        run = open_run(f"{folder}/run")
        (row,) = run.read("traces").to_pylist() or [None]
        rendered = list(render_run(run, codec("chatml")))
    wanted = [
        m
        for m in said
        if m["author"] == "teacher"
        and m["weight"]
        and m["finish_reason"] == "stop"
        and m["content"] in ("go", "stop here")
    ]
    if row is None:
        cut = [i for i, m in enumerate(said) if m["author"] == "teacher" and m["finish_reason"] != "stop"]
        assert not wanted or cut
    else:
        assert [len(trace.rendered.kept) for trace in rendered] == [len(wanted)] == [row["target_turns"]]
        assert row["C_tr"] == rendered[0].C_tr
