"""`plan --train FILE.toml`: the product's own train and evaluate, called as a user would call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pilots
import pytest
from waiting import ends

from analysis.plan.product import Product, read_product, run_command
from occupancy.record.errors import InputError, RunError
from occupancy.record.rows import Key, trace_row
from occupancy.runs import Run, create_run, open_run

TEXT = 'base = "models/pi_1"\npreset = "alfworld"\ntasks = "valid:40"\n[set]\nepochs = 2\n'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=4)


def cell_of(run: Run, traces: int = 1) -> Path:
    """A cut of the run with so many traces."""
    cell = create_run(run.folder / "trainings" / "cells" / f"abc{traces}", run.recipe, run.info)
    row = trace_row(
        Key("demo", "task-001", continuation=0), recipe_hash="", messages=[], target_turns=1, C_tr=9
    )
    cell.commit({"traces": [row] * traces})
    return cell.folder


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "train.toml").write_text(text)
    return tmp_path / "train.toml"


def test_a_cell_is_trained_on_and_its_student_evaluated(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def called(arguments: list[str], log: Path) -> dict[str, Any]:
        asked.append(" ".join(arguments))
        return {"chosen": "STUDENT/epoch-002"}

    monkeypatch.setattr("analysis.plan.product.run_command", called)
    product = read_product(written(tmp_path, TEXT), run)
    cell = cell_of(run)
    out = product([cell], 3)
    assert out.parent == run.folder / "trainings" / "evaluations"
    assert out.name.startswith("abc1-")
    assert out.name.endswith("-3")
    train, evaluate = asked
    assert train.startswith(f"-m analysis.cli train {cell} --base models/pi_1 --preset alfworld")
    assert "--set=seed=3 --set=epochs=2" in train
    assert "evaluate --env toy --policy vllm:STUDENT/epoch-002 --tasks valid:40 --attempts 1" in evaluate


def test_a_cut_without_a_trace_leaves_the_student_as_it_is(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("analysis.plan.product.run_command", lambda arguments, log: asked.append(arguments))
    product = read_product(written(tmp_path, f"hub = true\nsampling = 'max_tokens=9'\n{TEXT}"), run)
    product([cell_of(run, traces=0)], 3)
    (evaluate,) = asked
    assert evaluate[evaluate.index("--policy") + 1] == "vllm:models/pi_1,max_tokens=9,hub=1"


def test_an_answer_that_was_lost_is_not_trained_for_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the evaluation, whose student is gone by then, and before the training was recorded."""
    asked: list[str] = []

    def called(arguments: list[str], log: Path) -> dict[str, Any]:
        asked.append(arguments[2])
        if "--attempts" in arguments:
            Path(arguments[arguments.index("--out") + 1]).mkdir(parents=True)
        return {"chosen": "STUDENT/epoch-002"}

    monkeypatch.setattr("analysis.plan.product.run_command", called)
    cell = cell_of(run)
    first = read_product(written(tmp_path, TEXT), run)
    assert first([cell], 3) == first([cell], 3)
    assert asked == ["train", "evaluate"]
    # Of the same cut with other settings nothing was lost.
    other = read_product(written(tmp_path, TEXT.replace("epochs = 2", "epochs = 8")), run)
    assert other([cell], 3) != first([cell], 3)
    assert asked == ["train", "evaluate"] * 2


def test_environment_engine_and_sampling_are_the_pilots(run: Run, tmp_path: Path) -> None:
    info = run.info | {
        "student": "transformers:models/pi_1,max_tokens=64",
        "made_with": {"env": "terminal", "env_set": {"turns": "12", "mode": "raw"}},
    }
    (run.folder / "run.json").write_text(json.dumps(info))
    pilot = open_run(run.folder)
    product = read_product(written(tmp_path, f"{TEXT}[env_set]\nmode = 'settled'\n"), pilot)
    assert (product.env, product.env_set) == ("terminal", {"turns": "12", "mode": "settled"})
    assert (product.engine, product.sampling) == ("transformers", "max_tokens=64")
    other = read_product(written(tmp_path, f'engine = "vllm"\nsampling = "temperature=0"\n{TEXT}'), pilot)
    assert (other.engine, other.sampling) == ("vllm", "temperature=0")
    with pytest.raises(InputError, match="engine='sglang': expected one of vllm, transformers"):
        read_product(written(tmp_path, f'engine = "sglang"\n{TEXT}'), pilot)


def test_a_command_that_fails_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.txt"
    fails = "import sys; sys.stderr.write('Traceback\\nout of memory\\n'); sys.exit(1)"
    with pytest.raises(RunError, match=r"^out of memory \(whole output: .*logs/x.txt\)"):
        run_command(["-c", fails], log)
    assert "Traceback\nout of memory" in log.read_text()
    with pytest.raises(RunError, match="no message"):
        run_command(["-c", "pass"], log)


def test_progress_is_shown_and_the_answer_is_the_last_object(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "import sys; sys.stderr.write('train: step 1\\nloading\\n'); print('{\"a\": 1}')"
    assert run_command(["-c", says], tmp_path / "log") == {"a": 1}
    assert capsys.readouterr().err == "train: step 1\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_a_command_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    own, tells = tmp_path / "pid", "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid()))"
    child = ["-c", f"{tells}\nwhile True: time.sleep(60)", str(own)]
    starts = f"from pathlib import Path; from analysis.plan.product import run_command; run_command({child!r}"
    parent = subprocess.Popen([sys.executable, "-c", f"{starts}, Path({str(tmp_path / 'log')!r}))"])
    while not (own.exists() and own.read_text()):
        assert parent.poll() is None
        time.sleep(0.05)
    pid = int(own.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert ends(pid)


def test_another_student_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    other = TEXT.replace("models/pi_1", "models/random-two-layers")
    with pytest.raises(InputError, match="from models/random-two-layers, and the pilot's student is pi_1"):
        read_product(written(tmp_path, other), run)
    assert read_product(written(tmp_path, f"same_student = true\n{other}"), run).same_student


def test_settings_are_part_of_the_name() -> None:
    one, other = Product("b", "alfworld", "valid"), Product("b", "alfworld", "valid", attempts=2)
    assert one.name != other.name == Product("b", "alfworld", "valid", attempts=2).name
    assert one.name == replace(one, gpus=4, keep_students=True, hub=True, same_student=True).name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = ", "cannot be read"),
        ("wrong = 1", "'wrong'"),
        ('base = "x"', "'preset'"),
        (f'attempts = "2"\n{TEXT}', "attempts='2': expected a whole number"),
        (f'hub = "no"\n{TEXT}', "hub='no': expected 0 or 1"),
        (f"env_set = 3\n{TEXT}", "env_set=3: expected a table"),
        (TEXT.replace('"models/pi_1"', "3"), "base=3: expected a text"),
        (TEXT.replace("valid:40", " "), "tasks='': expected a text"),
        (TEXT.replace("alfworld", "other"), "no preset 'other'"),
        (f"{TEXT}lr = 'high'", "lr='high'"),
        (f"{TEXT}seed = 3", "each training has its own"),
    ],
)
def test_files_that_say_too_little_are_refused(run: Run, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_product(written(tmp_path, text), run)
