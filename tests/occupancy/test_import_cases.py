"""Files of other tools: each ends in the right rows, or in one line that says why not.

The files are not in the repository: they are in `cases/import` beside the folder of benchmark data.
"""

import json
import os

import pytest

from analysis.cli import main
from occupancy.runs import open_run

ONE = [("r", "")]
PLAIN = [("answer", "")]


def call(name, arguments):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


READ = {
    # file: format, (text, observation) of each turn of each episode, turns that are trained on
    "atif_list.json": ("atif", [ONE], 1),
    "atif_obs_null.json": ("atif", [ONE], 1),
    "atif_ok.json": (
        "atif",
        [[("<think>look first</think>\n" + call("bash", '{"cmd": "ls"}'), "a.txt"), ("done", "")]],
        2,
    ),
    "chat_anthropic.jsonl": (
        "chat",
        [[("Let me look.\n" + call("bash", '{"cmd": "ls"}'), "a.txt"), ("a.txt", "")]],
        2,
    ),
    "chat_bom.jsonl": ("chat", [ONE], 1),
    "chat_dup_record.jsonl": ("chat", [[("x", "")], [("x", "")]], 2),
    "chat_function_call.jsonl": ("chat", [[(call("lookup", '{"id": 7}'), "12 m"), ("12 metres", "")]], 2),
    "chat_list.json": ("chat", [ONE], 1),
    "chat_messages_string.jsonl": ("chat", [ONE], 1),
    "chat_nul.jsonl": ("chat", [[("nul \0 byte", "")]], 1),
    "chat_parallel_tools.jsonl": (
        "chat",
        [[(call("f", "{}") + "\n" + call("g", "{}"), "one\nand?"), ("done", "")]],
        2,
    ),
    "chat_parts.jsonl": ("chat", [PLAIN], 1),
    "chat_parts_plain.jsonl": ("chat", [PLAIN], 1),
    "chat_parts_plain.jsonl.gz": ("chat", [PLAIN], 1),
    "chat_prefill_system_mid.jsonl": ("chat", [[("x", "new rules"), ("y", "")]], 2),
    "chat_reasoning_content.jsonl": (
        "chat",
        [[("<think>Two and two make four.</think>\n4", "and 3 more?"), ("<think>Seven then.</think>\n", "")]],
        1,
    ),
    "chat_refusal.jsonl": ("chat", [[("I will not do that.", "")]], 1),
    "chat_surrogate_turn.jsonl": ("chat", [[("half \\ud835 letter", "")]], 1),
    "chat_toolargs.jsonl": (
        "chat",
        [[(call("f", '{"x":1e5,"s":"caf\\u00e9","x":2}'), "ok"), ("done", "")]],
        2,
    ),
    "chat_toolcall_custom.jsonl": ("chat", [[(call("shell", '"ls"'), "ok"), ("done", "")]], 2),
    "chat_tools_field.jsonl": ("chat", [[(call("lookup", '{"id": 7}'), "12"), ("12", "")]], 2),
    "chat_topsystem.jsonl": ("chat", [ONE], 1),
    "chat_usage.jsonl": ("chat", [ONE], 0),
    "chat_weight0.jsonl": ("chat", [[("Wrong city", "Again"), ("Right city", "")]], 1),
    "inspect_attach.json": ("inspect", [PLAIN], 1),
    "inspect_bool_score.json": ("inspect", [[("a", "")], [("a", "")]], 2),
    "inspect_reasoning.json": ("inspect", [[("<think>think it over</think>\nanswer", "")]], 1),
    "inspect_tool_error.json": (
        "inspect",
        [[(call("bash", '{"cmd": "sleep 9"}'), "Command timed out"), ("it took too long", "")]],
        2,
    ),
    "sg_agentinstruct.json": (
        "sharegpt",
        [[("OK. I'll follow.", "Your task: find a cup."), ("ACTION: go to shelf 1", "")]],
        1,
    ),
    "sg_messages_fmt.jsonl": ("sharegpt", [ONE], 1),
    "sg_null_value.jsonl": ("sharegpt", [[("", "again"), ("r", "")]], 1),
    "sg_tool_calls.jsonl": ("sharegpt", [[(call("f", "{}"), "1"), ("1", "")]], 2),
    "swe_fc.traj": (
        "swe-agent",
        [
            [
                ("Let me look.\n" + call("bash", '{"command": "ls -F"}'), "a.txt\n(Open file: n/a)\nbash-$"),
                (call("submit", "{}"), "diff"),
            ]
        ],
        2,
    ),
    "trl_struct_args.parquet": (
        "trl",
        [
            [(call("search", '{"query": "x"}'), "r"), ("done", "")],
            [(call("click", '{"x": 1, "y": 2}'), "r"), ("done", "")],
        ],
        4,
    ),
    "verl_messages_json.parquet": ("trl", [ONE], 1),
    "verl_prompt_text.parquet": ("verl", [[("one", "")], [("two", "")]], 2),
    "verl_rollout_dump.jsonl": ("verl-rollouts", [ONE], 1),
    "verl_two_responses.parquet": ("verl", [[("one", "")], [("two", "")]], 2),
}
REFUSED = {
    "atif_image.json": "line 1, step 1: content part of type 'image': only text can be imported",
    "chat_latin1.jsonl": "line 1: not UTF-8 (byte 0xe9 at 57): convert the file",
    "chat_mini_exit.jsonl": "line 1, message 3: role 'exit'",
    "chat_nan.jsonl": "line 1: NaN is no JSON number",
    "chat_reward_neg.jsonl": "line 1: field 'reward' is -1: expected a reward in [0, 1]",
    "chat_reward_nested.jsonl": "expected the task's name; give --task meta.task_id",
    "chat_role_upper.jsonl": "line 1, message 2: role 'model'",
    "chat_taskid_float.jsonl": "line 1: field 'task_id' is 3.0",
    "inspect_cancelled.json": "no sample in it: the evaluation's status is 'cancelled'",
    "inspect_nosample_score.json": "sample 1: score 'match' is 'NaN'",
    "sg_item_str.jsonl": "line 1, message 1: 'human': expected an object {from, value}",
    "swe_noexit.traj": "exit_status ''",
    "trl_dpo.parquet": "row 1: a preference pair (chosen, rejected) has two endings",
}
REWARDS = {
    "inspect_bool_score.json": [1.0, 0.5],
    "verl_rollout_dump.jsonl": [1.0],
    "verl_two_responses.parquet": [0.0, 1.0],
    "inspect_reasoning.json": [1.0],
}
PROMPTS = {
    "chat_topsystem.jsonl": [["system", "Be brief."], ["user", "q"]],
    "chat_parts.jsonl": [["user", "text"]],
    "inspect_attach.json": [["user", "the long question"]],
}
TASK = {"atif": "session_id", "sg_agent": "id"}


@pytest.fixture(scope="session")
def cases(data_dir):
    folder = data_dir.parent / "cases" / "import"
    if not folder.is_dir():
        message = f"{folder} is not a folder: the files of other tools are kept there"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


def imported(file, out, capsys):
    task = next((field for start, field in TASK.items() if file.name.startswith(start)), "task_id")
    given = ["import", str(file), "--author", "teacher", "--task", task, "--out", str(out), "--json"]
    code = main(given)
    return code, capsys.readouterr()


def test_every_file_has_its_line_in_the_tables(cases):
    files = {f.name for f in cases.iterdir() if f.is_file() and f.suffix not in (".py", ".md")}
    assert files == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_the_rows_are_what_the_file_says(name, cases, tmp_path, capsys):
    form, conversations, targets = READ[name]
    code, printed = imported(cases / name, tmp_path / "run", capsys)
    assert code == 0, printed.err
    report = json.loads(printed.out)
    assert list(report["formats"].values()) == [form]
    run = open_run(tmp_path / "run")
    turns, episodes = run.read("turns").to_pylist(), run.read("episodes").to_pylist()
    said = [
        [(t["text"], t["observation"]) for t in turns if t["episode_id"] == e["episode_id"]] for e in episodes
    ]
    assert said == conversations
    assert sum(trace["target_turns"] for trace in run.read("traces").to_pylist()) == targets
    if name in REWARDS:
        assert [e["R"] for e in episodes] == REWARDS[name]
    if name in PROMPTS:
        assert [[m["role"], m["content"]] for m in json.loads(episodes[0]["prompt"])] == PROMPTS[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_file_is_one_line_and_leaves_nothing(name, cases, tmp_path, capsys):
    for _ in range(2):  # the same command may be given again
        code, printed = imported(cases / name, tmp_path / "run", capsys)
        assert (code, printed.out) == (2, "")
        assert printed.err.count("\n") == 1
        assert f"{name}, " in printed.err
        assert REFUSED[name] in printed.err
        assert not list(tmp_path.iterdir())


def test_usage_and_tools_are_kept(cases, tmp_path, capsys):
    imported(cases / "chat_usage.jsonl", tmp_path / "usage", capsys)
    (turn,) = open_run(tmp_path / "usage").read("turns").to_pylist()
    assert (turn["output_tokens"], turn["prompt_tokens"], turn["finish_reason"]) == (900, 5, "length")
    imported(cases / "chat_tools_field.jsonl", tmp_path / "tools", capsys)
    (episode,) = open_run(tmp_path / "tools").read("episodes").to_pylist()
    (system, user) = json.loads(episode["prompt"])
    assert system["content"].startswith('<tools>\n{"type": "function", "function": {"name": "lookup"')
    assert (system["role"], user["role"]) == ("system", "user")
