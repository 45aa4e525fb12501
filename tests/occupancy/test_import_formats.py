"""One hand-written file a format: the turns that it holds, with usage, rewards, models and ends."""

import json

import pytest
from import_files import (
    ALPACA,
    ATIF,
    CLAUDE,
    CODEX,
    COMPLETION,
    MINI_1,
    MINI_2,
    MINI_RESPONSES,
    OPENHANDS,
    OPENHANDS_1,
    ROLLOUT,
    SWIFT,
    TAU,
    TAU_2,
    TOOL_TURNS,
    VERIFIERS,
    lines,
    write,
)

from analysis.cli import main
from occupancy import DataError
from occupancy.importers import formats_of, read_episodes
from occupancy.importers.episodes import ImportSettings

USED = (4, 9, 2)
NONE = (None, None, None)
FILES = [
    # format, file, content, task, usage of turn 1, model, R, status
    ("mini-swe-agent", "key.traj.json", MINI_2, "key", USED, "", None, "budget_stopped"),
    ("mini-swe-agent", "key.traj.json", MINI_RESPONSES, "key", USED, "", None, "budget_stopped"),
    ("codex", "rollout-a.jsonl", lines(CODEX), "key", USED, "big", None, "finished"),
    ("claude-code", "a.jsonl", lines(CLAUDE), "key", USED, "big", None, "finished"),
    ("tau-bench", "a.json", TAU, "3", NONE, "", 1.0, "finished"),
    ("tau-bench", "a.json", TAU_2, "key", USED, "big", 0.0, "finished"),
    ("openhands", "key.json", OPENHANDS, "key", USED, "big", None, "finished"),
    ("openhands", "output.jsonl", lines([OPENHANDS_1]), "key", NONE, "big", 1.0, "finished"),
    ("openhands", "key.json", COMPLETION, None, NONE, "big", None, "finished"),
    ("verifiers", "a.jsonl", lines([VERIFIERS]), "7", NONE, "", 0.5, "finished"),
]


def read(file, **more):
    return list(read_episodes(formats_of([file]), settings=ImportSettings(author="teacher", **more)))


@pytest.mark.parametrize("expected", FILES)
def test_a_file_is_recognised_and_its_turns_are_what_the_model_wrote(tmp_path, expected):
    form, name, content, task, usage, model, R, status = expected
    file = write(tmp_path, name, content)
    assert formats_of([file]) == {str(file): form}
    (episode,) = read(file)
    assert [(turn.text, turn.observation) for turn in episode.turns] == TOOL_TURNS
    first = episode.turns[0]
    assert (first.output_tokens, first.prompt_tokens, first.cached_tokens) == usage
    assert (first.model, first.role, episode.R, episode.status) == (model, "tool", R, status)
    assert task in (None, episode.task_id)
    assert "Which file?" in str(episode.prompt) or form == "mini-swe-agent"


def test_texts_without_tools(tmp_path):
    (episode,) = read(write(tmp_path, "key.traj.json", MINI_1))
    assert [(t.text, t.observation) for t in episode.turns] == [
        ("```bash\nls\n```", "a.py"),
        ("```bash\nsubmit\n```", "diff"),
    ]
    assert (episode.turns[0].output_tokens, episode.turns[0].model, episode.status) == (4, "big", "finished")
    alpaca, swift = (read(write(tmp_path, "a.json", [record]))[0] for record in (ALPACA, SWIFT))
    assert [(t.text, t.observation) for t in alpaca.turns] == [("Hello", "Add.\n2 and 2"), ("4", "")]
    assert swift.prompt == (("system", "Be brief."), ("user", "2 and 2?"))
    (rollout,) = read(write(tmp_path, "a.jsonl", ROLLOUT))
    assert [(t.text, t.observation) for t in rollout.turns] == [("Let me look.", "a.py"), ("It is a.py.", "")]
    assert rollout.R == 1.0


def test_a_harbor_trial_has_its_task_reward_and_error_beside_the_trajectory(tmp_path):
    document = {**ATIF, "extra": {}}
    (tmp_path / "agent").mkdir()
    file = write(tmp_path / "agent", "trajectory.json", document)
    result = {"task_name": "key", "trial_name": "key__1", "verifier_result": {"rewards": {"reward": 1.0}}}
    beside = write(tmp_path, "result.json", result)
    (episode,) = read(file)
    assert (episode.task_id, episode.R, episode.status) == ("key", 1.0, "finished")
    late = {"exception_type": "AgentTimeoutError", "exception_message": "too\nslow"}
    unsure = {**result, "verifier_result": None}
    broken = {**late, "exception_type": "VerifierTimeoutError"}
    for told, R, status, error in (
        # A time limit and a reward are independent of each other.
        ({**result, "exception_info": late}, 1.0, "finished", "AgentTimeoutError: too slow"),
        ({**unsure, "exception_info": late}, None, "wall_time", "AgentTimeoutError: too slow"),
        ({**result, "exception_info": broken}, 1.0, "environment_error", "VerifierTimeoutError: too slow"),
        (unsure, None, "environment_error", "the trial has no reward"),
        ({**result, "step_results": [{"exception_info": broken}]}, 1.0, "environment_error", None),
    ):
        beside.write_text(json.dumps(told))
        (episode,) = read(file)
        assert (episode.R, episode.status) == (R, status)
        assert error is None or episode.error == error
    for bad in (float("nan"), 2.0, "1"):
        beside.write_text(json.dumps({**result, "verifier_result": {"rewards": {"reward": bad}}}))
        with pytest.raises(DataError, match=r"NaN is no JSON number|expected a reward in \[0, 1\]"):
            read(file)
    beside.write_text(json.dumps(unsure))
    (episode,) = read(file, reward="none")
    assert (episode.R, episode.status) == (None, "finished")
    with pytest.raises(DataError, match=r"a Harbor result: give the trial's trajectory\.json"):
        list(read_episodes({str(beside): "atif"}, settings=ImportSettings(author="teacher")))


def test_tokens_of_a_harbor_trial_that_no_turn_has_are_counted(tmp_path):
    (tmp_path / "agent").mkdir()
    file = write(tmp_path / "agent", "trajectory.json", {**ATIF, "extra": {}})
    known = sum(turn.output_tokens or 0 for turn in read(write(tmp_path, "alone.json", ATIF))[0].turns)
    result = {
        "task_name": "key",
        "trial_name": "key__1",
        "verifier_result": {"rewards": {"reward": 1.0}},
        "agent_result": {"n_output_tokens": known + 7},
    }
    write(tmp_path, "result.json", result)
    settings = ImportSettings(author="teacher")
    list(read_episodes({str(file): "atif"}, settings=settings))
    assert settings.left_out == {"output token of result.json that no turn has": 7}


def test_reasoning_tokens_beside_the_metrics_are_read(tmp_path):
    metrics = {"completion_tokens": 9, "extra": {"reasoning_tokens": 4}}
    step = {"source": "agent", "message": "yes", "metrics": metrics}
    document = {"schema_version": "ATIF-v1.8", "task_id": "key", "agent": {}, "steps": [step]}
    (episode,) = read(write(tmp_path, "a.json", document))
    assert (episode.turns[0].output_tokens, episode.turns[0].reasoning_tokens) == (9, 4)


def test_a_jobs_folder_of_harbor_is_its_trajectories(tmp_path, capsys):
    for name in ("one", "two", "three"):
        trial = tmp_path / "jobs" / "job" / name
        (trial / "agent").mkdir(parents=True)
        (trial / "verifier").mkdir()
        for file in ("config.json", "lock.json", "../config.json", "../lock.json", "../result.json"):
            write(trial, file, {})
        result = {"task_name": name, "trial_name": name, "verifier_result": {"rewards": {"reward": 1.0}}}
        write(trial, "result.json", result)
        write(trial / "verifier", "reward.json", {"reward": 1.0})
        if name != "three":
            write(trial / "agent", "trajectory.json", {**ATIF, "extra": {}})
    write(tmp_path / "jobs" / "job" / "two" / "agent", "trajectory.cont-1.json", ATIF)
    arguments = [
        "import",
        str(tmp_path / "jobs"),
        "--author",
        "teacher",
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    assert main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["episodes"], told["rewards"]) == (2, 2)
    assert told["left_out"] == {"trial without a trajectory": 1, "continued trajectory of a trial": 1}


def test_variants_of_a_format(tmp_path):
    stream = [{**e, "session_id": "key"} for e in CLAUDE if e.get("uuid") not in (None, "x", "s")]
    stream = [{k: v for k, v in e.items() if k not in ("parentUuid", "sessionId")} for e in stream]
    old = [
        {"id": "key", "timestamp": "", "instructions": None},
        *(e["payload"] for e in CODEX if e["type"] == "response_item"),
    ]
    pairs = {
        "instance_id": "key",
        "history": [[OPENHANDS[1], {"observation": "null"}], OPENHANDS[3:5], OPENHANDS[5:]],
    }
    said = {
        **VERIFIERS,
        "completion": [
            {**m, "tool_calls": [json.dumps(c) for c in m.get("tool_calls", ())]}
            for m in VERIFIERS["completion"]
        ],
    }
    parts = [
        {"type": "text", "value": "Let me look."},
        {"type": "tool_call", "value": '{"name": "bash", "arguments": {"cmd": "ls"}}'},
    ]
    llamafactory = {
        "task_id": "key",
        "messages": [
            {"role": "user", "content": [{"type": "text", "value": "Which file?"}], "loss_weight": 0.0},
            {"role": "assistant", "content": parts, "loss_weight": 0.0},
            {"role": "tool", "content": [{"type": "text", "value": "a.py"}]},
            {"role": "assistant", "content": [{"type": "text", "value": "It is a.py."}], "loss_weight": 1.0},
        ],
    }
    for records in (stream, old, [pairs], [said], [llamafactory]):
        (episode,) = read(write(tmp_path, "a.jsonl", lines(records)))
        assert [(turn.text, turn.observation) for turn in episode.turns] == TOOL_TURNS
    assert [turn.train for turn in episode.turns] == [False, True]
    with pytest.raises(DataError, match="no user's message before the first turn"):
        read(write(tmp_path, "a.jsonl", lines(stream[1:])))


@pytest.mark.parametrize("record", [{"sessionId": "s"}, {"parentUuid": None, "type": "user"}])
def test_a_session_of_claude_code_is_recognised_by_either_name(tmp_path, record):
    file = write(tmp_path, "a.jsonl", record)
    assert formats_of([file]) == {str(file): "claude-code"}


REFUSED = [
    ("a.jsonl", {**ROLLOUT, "input": "user\nq\nassistant\n"}, "without its special tokens"),
    (
        "a.jsonl",
        lines([*CODEX, {"type": "compacted", "payload": {"message": "m"}}]),
        "line 11: the session was compacted",
    ),
    (
        "a.json",
        [{**OPENHANDS[3], "tool_call_metadata": None}],
        "event 1: action 'run' without tool_call_metadata",
    ),
    ("a.json", [OPENHANDS[0], {"observation": "condensation", "source": "agent"}], "event 2: a condensation"),
    (
        "a.json",
        {**TAU_2, "simulations": [{"messages": [], "termination_reason": "x"}]},
        "simulation 1: termination_reason",
    ),
    ("a.traj.json", {**MINI_1, "info": {}}, "no exit_status under 'info'"),
    ("a.json", [{"instruction": "q", "output": None}], "record 1: no text under 'output'"),
    (
        "a.json",
        {"task_id": "k", "messages": [{"role": "assistant", "tool_calls": [{"function": -1}]}]},
        "message 1: a tool call has the name None",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_what_has_no_place_is_refused_by_name(tmp_path, name, content, message):
    with pytest.raises(DataError) as refusal:
        read(write(tmp_path, name, content))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_only_the_last_completion_of_a_conversation_is_taken(tmp_path):
    first, last = (write(tmp_path, f"big-{n}.json", COMPLETION) for n in (1, 2))
    assert len(read(last)) == 1
    with pytest.raises(DataError, match=r"give the last alone, big-2\.json"):
        read(first)


@pytest.mark.parametrize("given", [{**COMPLETION, "messages": None}, {"response": {}}])
def test_a_completion_without_its_messages_is_refused(tmp_path, given):
    file = write(tmp_path, "big-1.json", given)
    with pytest.raises(DataError, match="no list under 'messages'"):
        list(read_episodes({str(file): "openhands"}, settings=ImportSettings(author="teacher")))
