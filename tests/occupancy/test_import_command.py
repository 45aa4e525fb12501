"""`fewsteps import`: files of other tools become run folders that the other commands read."""

import json
import os
import shlex
from pathlib import Path

import pytest
from import_files import (
    ALPACA,
    ATIF,
    CLAUDE,
    CODEX,
    INSPECT,
    MESSAGES,
    MINI_2,
    OPENHANDS,
    ROLLOUT,
    SHAREGPT,
    TAU,
    TRAJ,
    VERIFIERS,
    lines,
    write,
)

from analysis.cli import main
from occupancy.importers import FORMATS
from occupancy.importers.rows import WORDS
from occupancy.runs import open_run

FILES = {
    "alpaca": ("a.json", [ALPACA], ["--author", "student"]),
    "claude-code": ("a.jsonl", lines(CLAUDE), ["--author", "student"]),
    "codex": ("a.jsonl", lines(CODEX), ["--author", "student"]),
    "mini-swe-agent": (
        "a.traj.json",
        {**MINI_2, "info": {"exit_status": "Submitted"}},
        ["--author", "student"],
    ),
    "openhands": ("a.json", OPENHANDS, ["--author", "student"]),
    "tau-bench": ("a.json", TAU, ["--author", "student"]),
    "verifiers": ("a.jsonl", VERIFIERS, ["--author", "student"]),
    "verl-rollouts": ("a.jsonl", ROLLOUT, ["--author", "student"]),
    "atif": ("a.json", ATIF, ["--author-of", "big=teacher", "--author-of", "small=student"]),
    "chat": ("a.jsonl", {"task_id": "key", "messages": MESSAGES}, []),
    "inspect": ("a.json", INSPECT, ["--author", "student"]),
    "sharegpt": ("a.json", {"task_id": "key", "conversations": SHAREGPT}, ["--author", "student"]),
    "swe-agent": ("key.traj", {**TRAJ, "info": {"exit_status": "submitted"}}, ["--author", "student"]),
    "trl": ("a.parquet", [{"task_id": "key", "messages": MESSAGES}], []),
    "verl": ("a.parquet", [{"task_id": "key", "messages": MESSAGES}], []),
}


def told(capsys, *arguments):
    """Exit code, JSON object or nothing, standard error."""
    code = main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else None, printed.err


def test_an_imported_run_has_no_account_and_no_cuts_and_the_line_says_so(tmp_path, capsys):
    name, content, _ = FILES["chat"]
    file, run = write(tmp_path, name, content), tmp_path / "run"
    assert told(capsys, "import", file, "--out", run, "--author", "teacher", "--json")[0] == 0
    code, _, error = told(capsys, "ledger", run)
    assert code == 2
    assert "was imported: nothing was bought in it" in error
    assert "restore" not in error
    code, _, error = told(capsys, "cut", run, "--recipe", "op-short", "--out", tmp_path / "cell")
    assert code == 2
    assert "was imported: it has no continuations that" in error


def test_every_format_is_offered():
    assert set(FORMATS) == set(FILES)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_becomes_a_run_whose_occupancy_can_be_asked_for(tmp_path, capsys, form):
    name, content, authors = FILES[form]
    file, run = write(tmp_path, name, content), tmp_path / "run"
    code, report, _ = told(capsys, "import", file, "--format", form, "--out", run, *authors, "--json")
    assert code == 0
    turns = open_run(run).read("turns").to_pylist()
    assert report["turns"] == len(turns) == sum(report["authors"].values())
    assert set(report["authors"]) == {turn["author"] for turn in turns}
    assert open_run(run).recipe.T_max == report["T_max"] == max(turn["t"] for turn in turns)
    code, found, _ = told(capsys, "occupancy", run, "--json")
    assert code == 0
    assert found["turns"] == sum(turn["kind"] == "rollout" for turn in turns) - stopped_turns(form)
    code, _, error = told(capsys, "import", file, "--format", form, "--out", run, *authors)
    assert (code, "exists: name a new folder" in error) == (2, True)


def stopped_turns(form):
    """Turns of episodes that ended in an error or at a budget: no data for an occupancy."""
    return {"inspect": 1}.get(form, 0)


def test_demonstrations_are_a_kind_of_their_own(tmp_path, capsys):
    file = write(tmp_path, "a.json", {"task_id": "key", "conversations": SHAREGPT})
    run = tmp_path / "run"
    assert main(["import", str(file), "--format", "sharegpt", "--author", "teacher", "--out", str(run)]) == 0
    assert "1 demo" in capsys.readouterr().out
    assert told(capsys, "occupancy", run, "--kind", "demo", "--json")[1]["turns"] == 2
    code, _, error = told(capsys, "occupancy", run)
    assert (code, "expected one of demo" in error) == (2, True)


def test_states_that_never_recur_are_said(capsys):
    """Contexts of conversations are their whole histories, of which a run repeats few."""
    pilot = str(Path(__file__).parents[2] / "analysis" / "pilot")
    for more, alone in (((), True), (("--columns", "state=t"), False)):
        assert main(["occupancy", pilot, "--top", "2", *more]) == 0
        assert capsys.readouterr().out.startswith("Nearly every turn is a state of its own") == alone


UNSIGNED = {
    "task_id": "key",
    "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
}
WRONG = [
    ([], UNSIGNED, "line 2, message 2: the turn names nobody as its author"),
    (["--author-of", "teacher"], UNSIGNED, "expected MODEL=student or MODEL=teacher"),
    (["--author-of", "big=me"], UNSIGNED, "author 'me'"),
    (
        ["--author", "student", "--T-max", "1"],
        {"task_id": "key", "messages": MESSAGES},
        "2 turns with --T-max 1",
    ),
    (["--author", "student", "--reward", "score"], UNSIGNED, "field 'score' is None"),
]


@pytest.mark.parametrize(("more", "record", "message"), WRONG)
def test_what_is_refused_leaves_no_run(tmp_path, capsys, more, record, message):
    file = write(tmp_path, "a.jsonl", "\n" + json.dumps(record))
    code, report, error = told(capsys, "import", file, "--format", "chat", "--out", tmp_path / "run", *more)
    assert (code, report) == (2, None)
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_usage_and_finish_reasons_of_the_file_are_read(tmp_path, capsys):
    usage = {"prompt_tokens": 9, "completion_tokens": 40, "total_tokens": 49}
    usage["completion_tokens_details"] = {"reasoning_tokens": 30}
    said = {"role": "assistant", "author": "teacher", "model": "big"}
    messages = [
        {"role": "user", "content": "q"},
        {**said, "content": "one", "usage": usage, "finish_reason": "stop"},
        {**said, "content": "two words", "usage": {"completion_tokens": 0, "prompt_tokens": 0}},
        {**said, "content": "cut", "finish_reason": "max_tokens"},
    ]
    file, run = write(tmp_path, "a.jsonl", {"task_id": "key", "messages": messages}), tmp_path / "run"
    assert told(capsys, "import", file, "--format", "chat", "--out", run, "--json")[0] == 0
    turns = open_run(run).read("turns").to_pylist()
    columns = ("output_tokens", "reasoning_tokens", "prompt_tokens", "finish_reason")
    assert [tuple(turn[name] for name in columns) for turn in turns] == [
        (40, 30, 9, "stop"),
        (2, 0, None, "stop"),
        (1, 0, None, "length"),
    ]
    assert [turn["counter"] for turn in turns] == ["big", WORDS, WORDS]


@pytest.mark.parametrize("command", ["import", "simulate"])
def test_a_full_disk_leaves_nothing_under_the_final_name(tmp_path, capsys, monkeypatch, command):
    file = write(tmp_path, "a.jsonl", {"task_id": "key", "messages": MESSAGES})
    given = {
        "import": ["import", str(file), "--format", "chat"],
        "simulate": [
            "simulate",
            "--world",
            "short",
            "--seeds",
            "2",
            "--budgets",
            "2000",
            "--K",
            "1",
            "--r",
            "1",
        ],
    }[command]
    out = tmp_path / "out"

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("occupancy.record.drafts.sync", full)
        patched.setattr("occupancy.runs.sync", full)
        assert main([*given, "--out", str(out)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert main([*given, "--out", str(out)]) == 0
    assert main([*given, "--out", ""]) == 2
    assert "--out" in capsys.readouterr().err


def authored(author, *turns):
    """Messages of turns (text, reply, output tokens)."""
    said = {"role": "assistant", "author": author, "model": f"the {author}"}
    for text, reply, tokens in turns:
        yield {**said, "content": text, "usage": {"completion_tokens": tokens, "prompt_tokens": 20}}
        yield {"role": "user", "content": reply}


def pilot_records():
    """Of each task a student's run, and the teacher's turns from its second turn on."""
    for task in range(24):
        begin = [{"role": "user", "content": f"task {task}"}, *authored("student", ("go", "a wall", 3))]
        rest = list(authored("student", ("wait", "nothing", 4), ("stop", "the end", 5)))
        taught = list(authored("teacher", ("turn", "a door", 6), ("open", "the end", 7)))
        name = {"task_id": f"task {task}"}
        yield {**name, "reward": float(task % 3 == 0), "messages": [*begin, *rest]}
        yield {**name, "reward": float(task % 5 > 0), "messages": [*begin, *taught]}


def test_each_continuation_of_a_rollout_has_a_number_of_its_own(tmp_path, capsys):
    alone, continued, *_ = pilot_records()
    file = write(tmp_path, "a.jsonl", lines([alone, continued, continued]))
    assert told(capsys, "import", file, "--out", tmp_path / "run", "--json")[0] == 0
    episodes = open_run(tmp_path / "run").read("episodes").to_pylist()
    assert [e["continuation"] for e in episodes if e["kind"] == "continuation"] == [0, 1]


def test_three_commands_lead_from_conversations_to_costs_and_a_designed_pilot(tmp_path, capsys):
    file, run = write(tmp_path, "a.jsonl", lines(pilot_records())), tmp_path / "run"
    code, report, _ = told(capsys, "import", file, "--out", run, "--json")
    assert (code, report["kinds"]) == (0, {"rollout": 24, "continuation": 24})
    assert report["traces"] == 24
    continuations = [e for e in open_run(run).read("episodes").to_pylist() if e["kind"] == "continuation"]
    assert {(e["switch_turn"], e["K"], e["length"], e["teacher_turns"]) for e in continuations} == {
        (2, 3, 3, 2)
    }
    assert {(e["prefix_policy"], e["teacher"]) for e in continuations} == {("the student", "the teacher")}
    code, plan, _ = told(capsys, "plan", run, "--budget", "2000", "--json")
    assert code == 0
    depths = {c["K"] for c in plan["candidates"] if c["cost_inference"] > 0}
    assert {1, 2} < depths
    assert plan["pilot"]["tokens"] == 24 * 13
    assert told(capsys, "plan", run, "--design", "--budget", "20000", "--json")[0] == 0


def test_the_report_says_what_a_plan_would_still_need(tmp_path, capsys):
    records = [record for record in pilot_records() if record["messages"][-2]["author"] == "student"]
    file, run = write(tmp_path, "a.jsonl", lines(records)), tmp_path / f"a {'long ' * 20}run"
    assert main(["import", str(file), "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    (view,) = [line for line in printed.splitlines() if line.startswith("next: fewsteps view")]
    assert shlex.split(view)[2:] == ["view", str(run), "--out", f"{run}.html"], "it can be copied"
    assert "missing for a plan: turns of the teacher, continuations by the teacher" in printed
    assert "fewsteps collect --pilot" in printed


def test_a_file_is_imported_once_whatever_it_is_called(tmp_path, capsys, monkeypatch):
    name, content, _ = FILES["chat"]
    file = write(tmp_path, name, content)
    monkeypatch.chdir(tmp_path)
    code, _, error = told(capsys, "import", file.name, file, "--out", "run", "--author", "teacher")
    assert (code, f"{file} is given twice" in error) == (2, True)


def test_files_of_one_name_in_two_folders_are_different_tasks(tmp_path, capsys):
    for folder in ("a", "b"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        write(tmp_path / "in" / folder, "x.jsonl", {**UNSIGNED, "task_id": folder})
    asked = "import", tmp_path / "in", "--author", "teacher", "--task", "line", "--out", tmp_path / "run"
    assert told(capsys, *asked, "--json")[1]["tasks"] == 2
    names = open_run(tmp_path / "run").column("episodes", "task_id")
    assert names == ["a/x.jsonl:line 1", "b/x.jsonl:line 1"]


def test_what_is_no_file_is_not_left_out_of_a_folder(tmp_path, capsys):
    """Such as a link of a data set that was copied without what it leads to."""
    write(tmp_path, "a.jsonl", UNSIGNED)
    for name, told_of, make in (
        ("b.jsonl", "no such file", lambda file: file.symlink_to("nowhere")),
        ("c.jsonl", "is a folder, device or pipe", os.mkfifo),
    ):
        make(tmp_path / name)
        code, _, error = told(capsys, "import", tmp_path, "--author", "teacher", "--out", tmp_path / "run")
        assert (code, f"{name}: {told_of}" in error) == (2, True)
        (tmp_path / name).unlink()


def test_settings_that_no_record_needs_are_refused(tmp_path, capsys):
    file, run = write(tmp_path, "a.jsonl", {**UNSIGNED, "model": "big"}), tmp_path / "run"
    asked = "import", file, "--author", "teacher", "--out", run
    code, _, error = told(capsys, *asked, "--author-of", "bigg=student")
    assert (code, "--author-of bigg: no turn names this model" in error) == (2, True)
    code, _, error = told(capsys, *asked, "--token-ids")
    assert (code, "--token-ids: chat has none" in error) == (2, True)
    assert not run.exists()


def test_a_kill_at_the_very_end_leaves_nothing_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "a.jsonl", {"task_id": "key", "messages": MESSAGES})
    monkeypatch.setattr("shutil.rmtree", lambda *left, **how: None)  # what a killed process would not do
    assert main(["import", str(file), "--out", str(tmp_path / "run")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "run"]
