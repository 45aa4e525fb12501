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
    failed = {"exception_type": "AgentTimeoutError", "exception_message": "too\nslow"}
    beside.write_text(json.dumps({**result, "exception_info": failed}))
    (episode,) = read(file)
    assert (episode.status, episode.error) == ("budget_stopped", "AgentTimeoutError: too slow")
    with pytest.raises(DataError, match=r"a Harbor result: give the trial's trajectory\.json"):
        list(read_episodes({str(beside): "atif"}, settings=ImportSettings(author="teacher")))


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
