"""`plan --train FILE.toml`: the product's own train and evaluate, called as a user would call them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pilots
import pytest

from analysis.plan.product import Product, read_product
from occupancy.record.errors import InputError, RunError
from occupancy.runs import Run

TEXT = 'base = "models/pi_1"\npreset = "alfworld"\ntasks = "valid:40"\n[set]\nepochs = 2\n'


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=4)


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "train.toml").write_text(text)
    return tmp_path / "train.toml"


def test_a_cell_is_trained_on_and_its_student_evaluated(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def called(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(arguments[1:])
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"chosen": "STUDENT/epoch-002"}), "")

    monkeypatch.setattr(subprocess, "run", called)
    product = read_product(written(tmp_path, TEXT), run)
    cell = run.folder / "trainings" / "cells" / "abc"
    assert product([cell], 3) == run.folder / "trainings" / "evaluations" / "abc-3"
    train, evaluate = (" ".join(line) for line in asked)
    assert train.startswith(f"-m analysis.cli train {cell} --base models/pi_1 --preset alfworld")
    assert "--set=seed=3 --set=epochs=2" in train
    assert "evaluate --env toy --policy vllm:STUDENT/epoch-002 --tasks valid:40 --attempts 1" in evaluate


def test_a_command_that_fails_is_one_line_with_its_last_words(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(arguments, 1, "", "Traceback\nout of memory\n")

    monkeypatch.setattr(subprocess, "run", failed)
    with pytest.raises(RunError, match=r"^out of memory \(whole output: .*logs/abc-3.txt\)"):
        read_product(written(tmp_path, TEXT), run)([run.folder / "trainings" / "cells" / "abc"], 3)


def test_another_student_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    other = TEXT.replace("models/pi_1", "models/random-two-layers")
    with pytest.raises(InputError, match="from models/random-two-layers, and the pilot's student is pi_1"):
        read_product(written(tmp_path, other), run)
    assert read_product(written(tmp_path, f"same_student = true\n{other}"), run).same_student


def test_settings_are_part_of_the_name(run: Run, tmp_path: Path) -> None:
    one, other = Product("b", "alfworld", "valid"), Product("b", "alfworld", "valid", attempts=2)
    assert one.name != other.name == Product("b", "alfworld", "valid", attempts=2).name


@pytest.mark.parametrize(
    ("text", "message"),
    [("base = ", "cannot be read"), ("wrong = 1", "'wrong'"), ('base = "x"', "'preset'")],
)
def test_files_that_say_too_little_are_refused(run: Run, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_product(written(tmp_path, text), run)
