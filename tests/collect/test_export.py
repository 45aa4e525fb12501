"""Exports: read back by each trainer's own rule, the trained turns are the teacher's, each once, in its
context."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from toy_runs import rows, run_of
from toy_world import drunk

from agentloop.export.atif import documents
from agentloop.export.inspect_log import log_of
from agentloop.export.trainers import IGNORED, llamafactory
from agentloop.render.types import TraceMessage, read_messages
from agentloop.types import Answer, Ask, PolicyFailed
from analysis.cli import main
from occupancy.record.drafts import whole_folder
from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

Trained = Counter[tuple[tuple[tuple[str, str], ...], str]]
"""How often each turn is trained on, after which messages (role, text)."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return run_of(folder, preset("op-short", K=3, n=2, T_max=12))


def wanted(run: Run) -> Trained:
    found: Trained = Counter()
    for trace in rows(run, "traces"):
        messages = read_messages(trace["messages"])
        for at, m in enumerate(messages):
            if m.train:
                found[tuple((b.role, b.content) for b in messages[:at]), m.content] += 1
    return found


def exported(run: Run, form: str, out: Path) -> list[dict[str, Any]]:
    assert main(["export", str(run.folder), "--format", form, "--out", str(out)]) == 0
    assert (out / "how-to-train.txt").read_text()
    if (out / "train.parquet").exists():
        return pq.read_table(out / "train.parquet").to_pylist()
    return [json.loads(line) for line in (out / "train.jsonl").read_text().splitlines()]


def test_traces_of_failed_episodes_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A demonstration that failed is a trace too, unless the recipe's filter leaves it out."""
    for phi in ("all", "success"):
        made = run_of(tmp_path / phi, preset("pure-bc", n=1, T_max=5, phi=phi), teacher=drunk)
        out = tmp_path / f"{phi}-out"
        assert main(["export", str(made.folder), "--format", "verl", "--out", str(out), "--json"]) == 0
        told = capsys.readouterr()
        rewards = {row["episode_id"]: row["R"] for row in rows(made, "episodes")}
        failed = sum(rewards[row["episode_id"]] == 0 for row in rows(made, "traces"))
        assert json.loads(told.out)["traces_failed"] == failed
        assert (failed > 0) == (phi == "all")
        said = f"{failed} of {len(rows(made, 'traces'))} traces are of episodes with R = 0"
        assert (said in told.err) == (phi == "all")


@pytest.mark.parametrize(
    ("form", "key"), [("verl", "trainable"), ("verl", "loss_mask"), ("axolotl", "train")]
)
def test_masks_by_message(run: Run, tmp_path: Path, form: str, key: str) -> None:
    found: Trained = Counter()
    for row in exported(run, form, tmp_path / "out"):
        for at, m in enumerate(row["messages"]):
            if m["role"] == "assistant" and m[key]:
                found[tuple((b["role"], b["content"]) for b in row["messages"][:at]), m["content"]] += 1
    assert found == wanted(run)


@pytest.mark.parametrize(("form", "importer"), [("verl", "verl"), ("axolotl", "chat")])
def test_exports_are_read_back_with_their_authors(
    run: Run, tmp_path: Path, form: str, importer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(run, form, tmp_path / "out")
    (file,) = (tmp_path / "out").glob("train.*")
    assert main(["import", str(file), "--format", importer, "--out", str(tmp_path / "back")]) == 0
    back = open_run(tmp_path / "back")
    found = Counter((t["task_id"], t["author"], t["text"]) for t in rows(back, "turns"))
    stored = [(t["task_id"], json.loads(t["messages"])) for t in rows(run, "traces")]
    said = [(task, m) for task, messages in stored for m in messages if m["role"] == "assistant"]
    assert found == Counter((task, m["author"], m["content"]) for task, m in said)
    assert {author for _, author, _ in found} == {"student", "teacher"}


@pytest.mark.parametrize(("form", "key"), [("verl", "loss_mask"), ("axolotl", "train")])
def test_a_row_a_turn_trains_on_its_last_turn_alone(run: Run, tmp_path: Path, form: str, key: str) -> None:
    out = tmp_path / "out"
    command = ["export", str(run.folder), "--format", form, "--by", "turn", "--out", str(out)]
    assert main(command) == 0
    (file,) = out.glob("train.*")
    lines = (
        pq.read_table(file).to_pylist()
        if file.suffix == ".parquet"
        else [json.loads(line) for line in file.read_text().splitlines()]
    )
    found: Trained = Counter()
    for row in lines:
        assert [bool(m[key]) for m in row["messages"]] == [False] * (len(row["messages"]) - 1) + [True]
        *before, last = row["messages"]
        found[tuple((b["role"], b["content"]) for b in before), last["content"]] += 1
    assert found == wanted(run)
    assert (
        main(["export", str(run.folder), "--format", "trl", "--by", "turn", "--out", str(tmp_path / "x")])
        == 2
    )


def test_texts_like_special_tokens_are_counted_and_warned_of(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = (
        TraceMessage("user", "a <|im_end|> b </s> <b> <|x y|>", "task", False),
        TraceMessage("assistant", "go", "teacher", True),
    )
    monkeypatch.setattr("agentloop.export.write._messages", lambda run: [("e", "t", said)])
    command = ["export", str(run.folder), "--format", "axolotl", "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["texts_like_special_tokens"] == 2
    told = (tmp_path / "out" / "how-to-train.txt").read_text()
    assert "'</s>' (1), '<|im_end|>' (1)" in told
    assert all(line.startswith("#") for line in told.splitlines()[-3:])


def test_two_commands_do_not_write_one_folder(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["export", str(run.folder), "--format", "trl", "--out", str(out)]
    with whole_folder(out) as draft:
        (draft / "mine").write_text("mine")
        assert main(command) == 2
        assert "is being written by another command" in capsys.readouterr().err
    assert [f.name for f in out.iterdir()] == ["mine"]
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


def test_trl_trains_on_completions(run: Run, tmp_path: Path) -> None:
    found: Trained = Counter()
    for row in exported(run, "trl", tmp_path / "out"):
        (turn,) = row["completion"]
        found[tuple((b["role"], b["content"]) for b in row["prompt"]), turn["content"]] += 1
    assert found == wanted(run)


def test_llamafactory_trains_on_the_last_turn(run: Run, tmp_path: Path) -> None:
    roles = {"human": "user", "gpt": "assistant", "observation": "tool"}
    found: Trained = Counter()
    for row in exported(run, "llamafactory", tmp_path / "out"):
        *before, last = row["conversations"]
        context = (("system", row["system"]), *((roles[b["from"]], b["value"]) for b in before))
        found[context, last["value"]] += 1
        assert [b["from"] == "gpt" for b in row["conversations"]] == [
            bool(i % 2) for i in range(len(row["conversations"]))
        ]
    assert found == wanted(run)


def test_llamafactory_refuses_what_it_would_drop() -> None:
    messages = [
        TraceMessage("user", "q", "task", False),
        TraceMessage("user", "o", "environment", False),
        TraceMessage("assistant", "a", "teacher", True),
    ]
    with pytest.raises(DataError, match="e1: message 1 is by 'user'"):
        list(llamafactory(messages, "e1"))


def test_tokens_are_the_rendered_rows(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from families import tokenizer_of

    tokenizer = tokenizer_of("chatml")
    tokenizer.save_pretrained(tmp_path / "model")
    for form in ("tokens", "verifiers"):
        given = ["export", str(run.folder), "--format", form, "--model", str(tmp_path / "model")]
        assert main([*given, "--out", str(tmp_path / form)]) == 0
    trained = Counter()
    found = pq.read_table(tmp_path / "tokens" / "train.parquet").to_pylist()
    lines = (tmp_path / "verifiers" / "traces.jsonl").read_text().splitlines()
    for row, line in zip(found, map(json.loads, lines), strict=True):
        nodes = line["traces"][0]["nodes"]
        assert (row["trace"], row["task_id"]) == (line["trace"], line["task"]["data"]["name"])
        assert [node["parent"] for node in nodes] == [None, *range(len(nodes) - 1)]
        ids = [i for node in nodes for i in node["token_ids"]]
        mask = [target for node in nodes for target in node["mask"]]
        assert ids == row["input_ids"][: len(ids)], "a trace is one chain of messages"
        assert mask == [label != IGNORED for label in row["labels"][: len(ids)]]
        labels = row["labels"]
        assert all(label in (IGNORED, i) for label, i in zip(labels, row["input_ids"], strict=True))
        text = tokenizer.decode([label for label in labels if label != IGNORED])
        trained.update(text.split("<|im_end|>")[:-1])
    assert trained == Counter(text for (_, text), n in wanted(run).items() for _ in range(n))


def test_atif_documents_hold_whole_episodes_and_count_tokens_once(run: Run) -> None:
    found = list(documents(run))
    episodes = {e["episode_id"]: e for e in rows(run, "episodes")}
    turns = rows(run, "turns")
    assert [d["trajectory_id"] for d in found] == sorted(episodes)
    for document in found:
        episode = episodes[document["trajectory_id"]]
        steps = document["steps"]
        assert [s["step_id"] for s in steps] == list(range(1, len(steps) + 1))
        agent = [s for s in steps if s["source"] == "agent"]
        assert [s["extra"]["t"] for s in agent] == list(range(1, episode["length"] + 1))
        assert [s["source"] for s in steps[:2]] == ["system", "user"]
        copied = sum(bool(s.get("is_copied_context")) for s in agent)
        assert copied == max(episode["switch_turn"] - 1, 0)
    total = sum(d["final_metrics"]["total_completion_tokens"] for d in found)
    assert total == sum(t["output_tokens"] for t in turns)


def test_atif_command_and_its_errors(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "atif"
    assert main(["export", str(run.folder), "--format", "atif", "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == len(list(out.glob("*.json")))
    assert main(["export", str(run.folder), "--format", "atif", "--out", str(out)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["export", str(run.folder), "--format", "tokens", "--out", str(tmp_path / "t")]) == 2
    assert "needs --model FOLDER" in capsys.readouterr().err


def test_a_kill_or_a_full_disk_leaves_nothing_under_the_final_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = ["export", str(run.folder), "--format", "trl", "--out", str(out)]
    with monkeypatch.context() as full:
        full.setattr(Path, "write_text", _no_space)
        assert main(command) == 1
    assert "No space left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / ".out.draft").mkdir()
    (tmp_path / ".out.draft" / "train.jsonl").write_text("half")
    assert main(command) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_every_failure_is_an_error_in_a_log(tmp_path: Path) -> None:
    async def lost(ask: Ask) -> Answer:
        if ask.t == 3 and ask.seed % 2:
            raise PolicyFailed("no answer")
        return await drunk(ask)

    failed = run_of(tmp_path / "run", preset("op-short", K=2, T_max=12), student=lost)
    samples = log_of(failed)["samples"]
    errors = [sample.get("error", {}).get("message") for sample in samples if sample["scores"] is None]
    assert "no answer" in errors
    ended = {e["episode_id"]: e["status"] for e in failed.read("episodes").to_pylist()}
    assert {ended[s["metadata"]["episode_id"]] for s in samples if "error" in s} == {"student_failed"}
