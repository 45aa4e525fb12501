"""Small files in every format, written by hand after each format's documentation."""

import json
import re
import zipfile
from dataclasses import replace

import pytest
from import_files import ATIF, INSPECT, MESSAGES, SHAREGPT, TRAJ, write

from occupancy import DataError, InputError, importers
from occupancy.importers import FORMATS, formats_of
from occupancy.importers.episodes import ImportSettings
from occupancy.importers.rows import rows_of
from occupancy.record.tables import schema

UNSAID, TEACHER = ImportSettings(), ImportSettings(author="teacher")


def read_episodes(files, *, format, settings=UNSAID):
    return list(importers.read_episodes(formats_of(files, format), settings=settings))


def one(folder, name, content, format, settings=TEACHER):
    (episode,) = read_episodes([write(folder, name, content)], format=format, settings=settings)
    return episode


def texts(episode):
    return [(t.author, t.text, t.observation) for t in episode.turns]


CALL = '<tool_call>\n{"name": "go", "arguments": {"to": "drawer"}}\n</tool_call>'
TURNS = [("student", "look", "A drawer."), ("teacher", "open drawer", "The key.")]


def test_chat_keeps_authors_and_replies(tmp_path):
    line = json.dumps({"task_id": "key", "messages": MESSAGES, "score": 0.5})
    settings = ImportSettings(reward="score")
    (a, b) = read_episodes(
        [write(tmp_path, "a.jsonl", f"{line}\n\n{line}\n")], format="chat", settings=settings
    )
    assert texts(a) == TURNS
    assert a.prompt == (("system", "You act."), ("user", "Find the key."))
    assert (a.task_id, a.R) == ("key", 0.5)
    ids = [row["episode_id"] for row in rows_of([a, b], environment="imported")["episodes"]]
    assert ids == ["key#rollout-0-x-x-x", "key#rollout-1-x-x-x"]
    assert b.where.endswith("a.jsonl, line 3")


def test_tool_calls_are_part_of_the_turn(tmp_path):
    call = {"id": "1", "type": "function", "function": {"name": "go", "arguments": '{"to": "drawer"}'}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    episode = one(tmp_path, "a.jsonl", {"task_id": 3, "messages": messages}, "chat")
    assert texts(episode) == [("teacher", CALL, "")]
    assert episode.task_id == "3"


@pytest.mark.parametrize("as_list", [True, False])
def test_sharegpt(tmp_path, as_list):
    record = {"task_id": "key", "system": "You act.", "conversations": SHAREGPT}
    episode = one(tmp_path, "a.json", [record] if as_list else record, "sharegpt")
    assert texts(episode) == [("teacher", "look", "A drawer."), ("teacher", "open drawer", "")]
    assert episode.prompt[0] == ("system", "You act.")


def test_verl_and_trl(tmp_path):
    verl = [{"extra_info": {"task_id": "key"}, "prompt": MESSAGES[1:2], "responses": ["look", "wait"]}]
    a, b = read_episodes([write(tmp_path, "v.parquet", verl)], format="verl", settings=TEACHER)
    assert texts(a) + texts(b) == [("teacher", "look", ""), ("teacher", "wait", "")]
    assert texts(one(tmp_path, "m.parquet", [{"task_id": "key", "messages": MESSAGES}], "verl")) == TURNS
    assert texts(one(tmp_path, "n.parquet", [{"task_id": "key", "messages": MESSAGES}], "trl")) == TURNS
    pair = [{"task_id": "key", "prompt": "q", "completion": "a"}]
    assert texts(one(tmp_path, "p.parquet", pair, "trl")) == [("teacher", "a", "")]


@pytest.mark.parametrize("minor", range(9))
def test_atif(tmp_path, minor):
    settings = ImportSettings(models={"big": "teacher", "small": "student"})
    document = {**ATIF, "schema_version": f"ATIF-v1.{minor}"}
    episode = one(tmp_path, "a.json", document, "atif", settings)
    assert texts(episode) == [
        ("teacher", f"look\n{CALL}", "A drawer.\n(router)"),
        ("student", "open drawer", ""),
    ]
    first = episode.turns[0]
    assert (first.output_tokens, first.prompt_tokens, first.cached_tokens) == (4, 9, 2)


def test_atif_copies_are_context_and_subagents_are_episodes(tmp_path):
    steps = [{**ATIF["steps"][1], "is_copied_context": True}, ATIF["steps"][3]]
    document = {**ATIF, "steps": steps, "subagent_trajectories": [{**ATIF, "trajectory_id": "sub"}]}
    root, child = read_episodes([write(tmp_path, "a.json", document)], format="atif", settings=TEACHER)
    assert [role for role, _ in root.prompt] == ["assistant", "user"]
    assert len(root.turns) == 1
    assert (child.task_id, len(child.turns)) == ("key/sub", 2)


@pytest.mark.parametrize("archive", [True, False])
def test_inspect(tmp_path, archive):
    file = tmp_path / ("log.eval" if archive else "log.json")
    if archive:
        with zipfile.ZipFile(file, "w") as log:
            log.writestr("header.json", json.dumps({"eval": INSPECT["eval"]}))
            for number, sample in enumerate(INSPECT["samples"]):
                log.writestr(f"samples/{number}.json", json.dumps(sample))
    else:
        file.write_text(json.dumps(INSPECT))
    won, cut, broken = read_episodes([file], format="inspect", settings=TEACHER)
    assert texts(won) == TURNS
    assert (won.rollout, cut.rollout, cut.status) == (1, 0, "horizon")
    assert (broken.status, broken.error, broken.R) == ("environment_error", "it broke", None)
    with pytest.raises(DataError, match="no score 'match'"):
        read_episodes([file], format="inspect", settings=ImportSettings(author="teacher", reward="match"))


def test_swe_agent(tmp_path):
    episode = one(tmp_path, "django-1.traj", TRAJ, "swe-agent")
    assert texts(episode) == [("teacher", "ls", "a.py"), ("teacher", "submit", "")]
    assert [role for role, _ in episode.prompt] == ["system", "assistant", "user"]
    assert (episode.task_id, episode.status) == ("django-1", "budget_stopped")
    (trace,) = rows_of([episode], environment="imported")["traces"]
    said = [(message["author"], message["train"]) for message in json.loads(trace["messages"])]
    # An answer in the prompt is an example, and nobody is trained on it.
    assert said[:4] == [("task", False), ("student", False), ("task", False), ("teacher", True)]


def test_rows_fit_the_tables_and_the_ids_of_the_agent_loop(tmp_path):
    from agentloop.run.episode import History, context_ids
    from agentloop.types import Answer, Author, Message, Reply, Turn, Usage
    from occupancy.record.rows import text_hash
    from occupancy.runs import table_of

    episode = one(tmp_path, "a.jsonl", {"task_id": "key", "messages": MESSAGES}, "chat")
    rows = rows_of([episode], environment="imported")
    for name, table in rows.items():
        assert table_of(name, table).schema == schema(name)
    prompt = tuple(Message(role, text, "environment") for role, text in episode.prompt)
    usage = Usage(output=1, counter="words")
    history = History(
        prompt,
        tuple(
            Turn(t, Author(turn.author), Answer(turn.text, usage), Reply(turn.observation))
            for t, turn in enumerate(episode.turns, start=1)
        ),
    )
    assert [row["context_id"] for row in rows["turns"]] == list(context_ids(history))[:-1]
    assert rows["turns"][0]["observation_hash"] == text_hash("A drawer.")
    assert (rows["turns"][1]["output_tokens"], rows["turns"][1]["counter"][:5]) == (2, "words")
    assert rows["episodes"][0]["kind"] == "rollout"
    again = replace(episode, rollout=0)
    with pytest.raises(DataError, match="both rollout 0 of task 'key'"):
        rows_of([again, again], environment="imported")


CHAT = {"task_id": "key", "messages": MESSAGES[:3]}
UNSIGNED = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]
REFUSED = [
    ("chat", "a.jsonl", "{]", "line 1: not JSON"),
    ("chat", "a.jsonl", '{"task_id": "a", "messages": []}', "line 1: no messages"),
    ("chat", "a.jsonl", {"messages": MESSAGES}, "line 1: field 'task_id' is None"),
    ("chat", "a.jsonl", {"task_id": "a", "messages": UNSIGNED}, "message 2: the turn names nobody"),
    ("chat", "a.jsonl", {"task_id": "a", "messages": IMAGE}, "message 1: content part of type 'image_url'"),
    ("chat", "a.jsonl", {"task_id": "a", "messages": MESSAGES[:2]}, "no assistant message"),
    ("chat", "a.jsonl", {"task_id": "a", "messages": [{"role": "narrator"}]}, "role 'narrator'"),
    ("sharegpt", "a.json", {"task_id": "a", "conversations": [{"from": "bot"}]}, "role 'bot'"),
    ("trl", "a.parquet", [{"text": "a"}], "row 1: columns text: expected messages"),
    ("verl", "a.parquet", [{"task_id": "a", "prompt": "b"}], "row 1: columns task_id, prompt"),
    ("trl", "a.parquet.txt", "x", "not Parquet"),
    ("atif", "a.json", {**ATIF, "schema_version": "ATIF-v2.0"}, "schema_version 'ATIF-v2.0'"),
    ("atif", "a.json", ATIF, "step 2: the turn names the model 'big'"),
    ("atif", "a.json", {**ATIF, "steps": [{"source": "robot"}]}, "step 1: source 'robot'"),
    ("inspect", "a.eval", "x", "not an Inspect log"),
    ("swe-agent", "a.traj", {**TRAJ, "info": {}}, "step 1: the turn names nobody"),
    ("swe-agent", "a.traj", {"trajectory": [{}]}, "step 1: no text under 'response'"),
]


@pytest.mark.parametrize(("format", "name", "content", "message"), REFUSED)
def test_a_refused_file_says_where_and_why(tmp_path, format, name, content, message):
    file = write(tmp_path, name, content)
    with pytest.raises(DataError, match=re.escape(message)) as refusal:
        read_episodes([file], format=format)
    assert str(file) in str(refusal.value)


def test_unknown_formats_authors_and_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=f"expected auto or one of {', '.join(FORMATS)}"):
        read_episodes([], format="csv")
    with pytest.raises(InputError, match="author 'me'"):
        ImportSettings(author="me")
    with pytest.raises(DataError, match="no such file"):
        read_episodes([tmp_path / "none.jsonl"], format="chat")
