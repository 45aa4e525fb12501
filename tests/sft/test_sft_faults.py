"""Trainings that broke: states that execute, two writers, full disks, settings that are no numbers."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from families import tokenizer_of
from test_sft_train import settings
from tiny_models import random_rows, tiny_config
from torch.distributed.checkpoint.api import CheckpointException
from toy_runs import rows, run_of

from analysis.cli import main
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.record.recipe import preset
from occupancy.runs import Run, only_writer
from sft import commands
from sft.rows import read_classes
from sft.screen import Step, notes
from sft.train import train


def stopped(out: Path) -> dict[str, Any]:
    """A training that was stopped after step 2, and the arguments that go on with it."""
    given: dict[str, Any] = {
        "rows": random_rows(8),
        "base": tiny_config(),
        "settings": settings(),
        "out": out,
    }
    with pytest.raises(RunError, match="stopped after step 2"):
        train(**given, save_every=1, stop_after=2)
    return given


class Payload:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_nothing_in_a_state_can_execute(tmp_path: Path) -> None:
    out, mark = tmp_path / "out", tmp_path / "executed"
    given = stopped(out)
    assert sorted({f.suffix for f in (out / "state").iterdir()}) == [".json", ".safetensors"]
    for name in (".metadata", "progress.pkl", "__0_0.distcp", "evil.pt"):
        (out / "state" / name).write_bytes(pickle.dumps(Payload(mark)))
    train(**given)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists()


@pytest.mark.parametrize("damage", ["cut", "pickle", "no state", "progress"])
def test_a_damaged_state_is_one_line(tmp_path: Path, damage: str) -> None:
    out, mark = tmp_path / "out", tmp_path / "executed"
    given = stopped(out)
    (file,) = (out / "state").glob("*.safetensors")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-50])
    elif damage == "pickle":
        file.write_bytes(pickle.dumps(Payload(mark)))
    elif damage == "no state":
        file.unlink()
    else:
        (out / "state" / "progress.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="resume") as caught:
        train(**given)
    assert len(str(caught.value).splitlines()) == 1
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("log.jsonl", "", r"log.jsonl has 0 of 2 steps: restore it"),
        ("state/progress.json", "{}", r"the progress of .*out has epoch=None"),
        ("state/progress.json", '{"epoch": "x"}', r"has epoch='x'"),
        ("state/progress.json", "[]", r"expected a JSON object"),
    ],
)
def test_a_log_or_progress_that_lost_steps_is_one_line(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    given = stopped(tmp_path / "out")
    (tmp_path / "out" / name).write_text(text)
    with pytest.raises(DataError, match=said):
        train(**given)


def test_lines_of_a_log_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    given = stopped(tmp_path / "out")
    with (tmp_path / "out" / "log.jsonl").open("ab") as log:
        log.write(b"\xff\n" + b"[" * 200_000)
    assert len(train(**given).losses) == 4


def test_two_kills_while_a_state_is_replaced_leave_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one comes before the new state has its name, the second after what follows."""
    given = stopped(tmp_path / "out")
    rename = os.rename
    rename(tmp_path / "out" / "state", tmp_path / "out" / ".state-old")

    def killed(draft: Path, name: Path) -> None:
        if name.name == "state":
            raise KeyboardInterrupt
        rename(draft, name)

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        train(**given, save_every=1)
    monkeypatch.undo()
    assert (tmp_path / "out" / ".state-old").exists()
    steps: list[int] = []
    train(**given, show=lambda step: steps.append(step.step))
    assert steps == [3, 4]


def test_one_process_writes_a_training(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = stopped(out)
    before = (out / "log.jsonl").read_text()
    with only_writer(out), pytest.raises(RunError, match="being written by another process"):
        train(**given)
    assert (out / "log.jsonl").read_text() == before
    train(**given)


def test_a_full_disk_leaves_the_state_before_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(random_rows(8), base=tiny_config(), settings=settings(), out=tmp_path / "whole")
    given = stopped(tmp_path / "out")

    def full(*_: object, **__: object) -> None:
        raise CheckpointException("Traceback\nOSError", {0: (OSError(28, "No space left on device"), None)})

    with monkeypatch.context() as patched:
        patched.setattr(dcp, "save", full)
        with pytest.raises(RunError, match="make room"):
            train(**given, save_every=1)
    with (tmp_path / "out" / "log.jsonl").open("a") as log:
        log.write('{"step": 99, "lo')  # a kill in the middle of a line
    assert train(**given).losses == whole.losses


def test_an_empty_name_and_a_model_that_is_no_folder_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="empty name"):
        train(random_rows(8), base=tiny_config(), settings=settings(), out="")
    with pytest.raises(InputError, match="'no/such' is no folder"):
        train(random_rows(8), base="no/such", settings=settings(), out="there")
    assert main(["train", "run", "--base", "b", "--preset", "hotpotqa", "--out", ""]) == 2
    assert [p.name for p in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize(
    "change",
    [
        *("lr=NaN", "lr=inf", "lr=-1", "lr=[1]", "lr=", "lr=1e400", "epochs=1e26", "epochs=0", "epochs=2.5"),
        *("epochs=100000", "seed=-1", "seed=[1,2]", "seed=1e3", "held_out=1", "held_out=NaN", "betas=[1]"),
        *("betas=1,2", "betas=NaN,NaN", "betas=[[.9],.9]", "batch=-3", "row_tokens=1", "clip=NaN"),
        *("kernels=[]", "kernels=fast", "precision=null", "checkpointing=7", "lora_rank=1e9", "lr", "=1"),
    ],
)
def test_a_setting_that_is_no_number_in_range_is_one_line(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = ["train", "run", "--base", "b", "--preset", "hotpotqa", "--out", str(out), "--set", change]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert len(told.err.splitlines()) == 1
    assert not told.out
    assert not out.exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_of(tmp_path_factory.mktemp("bc") / "run", preset("pure-bc", n=1, T_max=12))


def test_a_base_that_is_no_checkpoint_is_one_line_and_begins_no_training(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer, config = tokenizer_of("chatml"), tiny_config()
    for name in ("empty", "tokenizer", "config", "broken"):
        (tmp_path / name).mkdir()
        if name != "empty":
            tokenizer.save_pretrained(tmp_path / name)
        if name in ("config", "broken"):
            config.save_pretrained(tmp_path / name)
    (tmp_path / "broken" / "model.safetensors").write_text("no weights")
    for name in ("nope", "empty", "tokenizer", "config", "broken"):
        command = ["train", str(run.folder), "--base", str(tmp_path / name), "--preset", "hotpotqa"]
        assert main([*command, "--set", "precision=fp32", "--out", str(tmp_path / "out")]) == 2
        told = capsys.readouterr().err.splitlines()[-1]
        assert "base" in told
        assert f"{name}' " in told
        assert "config.json, *.safetensors, tokenizer.json" in told
    assert not (tmp_path / "out" / "settings.json").exists(), "another base may still be trained there"


def test_settings_of_a_table_are_refused_in_words() -> None:
    for name in ("betas", "ours", "checkpointing"):
        with pytest.raises(InputError, match=f"{name}=7"):
            settings().replace(**{name: 7})


def test_a_training_is_recorded_under_the_runs_own_lock(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import LlamaForCausalLM

    tokenizer = tokenizer_of("chatml")
    LlamaForCausalLM(tiny_config(vocab_size=len(tokenizer))).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    command = ["train", str(run.folder), "--base", str(tmp_path / "base"), "--preset", "hotpotqa"]
    command += ["--out", str(tmp_path / "out"), "--json"]
    for change in ("epochs=1", "batch=8", "row_tokens=2048", "precision=fp32", "held_out=0"):
        command += ["--set", change]
    monkeypatch.setattr(commands, "WAIT_S", 0.0)
    with only_writer(run.folder):
        assert main(command) == 1
    assert "being written by another process" in capsys.readouterr().err
    assert not rows(run, "trainings")
    assert main(command) == 0
    told = capsys.readouterr()
    assert len(rows(run, "trainings")) == 1
    assert json.loads(told.out)["chosen"]


def test_the_speed_of_a_training_leaves_out_the_step_that_compiles() -> None:
    now = [0.0]
    note, said = notes(lambda: now[0]), []
    for step in range(1, 7):
        said.append(note(Step(step, 6, 1, 1 / step, 500)))
        now[0] += 5.0
    assert (said[0], said[-1]) == ("epoch 1, loss 1.0000", "epoch 1, loss 0.1667, 100 tokens/s")


@pytest.mark.parametrize("option", ["--save-every", "--turn-tokens"])
@pytest.mark.parametrize("value", ["NaN", "inf", "-1", "1e26", "", "many"])
def test_a_number_of_the_command_line_is_checked(
    option: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    arguments = [
        "train",
        "run",
        "--base",
        "b",
        "--preset",
        "hotpotqa",
        "--out",
        str(out),
        f"{option}={value}",
    ]
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert option in told
    assert len(told.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize("text", ["[]", '{"e": 1}', "[" * 100_000, "nothing", '{"e": null}'])
def test_classes_that_are_none_are_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "classes.json"
    file.write_text(text)
    with pytest.raises(DataError, match="expected"):
        read_classes(file)
