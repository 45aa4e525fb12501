"""A study with the product's own workers: a tiny model, trained and played on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from tiny_model import save_tiny_model

from analysis.cli import main
from occupancy.runs import open_run

CONFIG = """
name = "toy"
T_max = 12
[equipment]
base = "models/tiny"
env = "split_world:open_split"
preset = "alfworld"
engine = "transformers"
sampling = { max_tokens = 4, temperature = 0.7 }
[training]
precision = "fp32"
epochs = 1
batch = 4
row_tokens = 256
lr = 1e-3
held_out = 0.0
[demonstrations]
first = "train:3"
more = "train:3-12"
parts = 2
[pilot]
tasks = "train:12-20"
demo_tasks = 4
handback = [0, 1]
replicates = 1
parts = 2
[trainings]
tasks = "held_out:3"
count = 2
[collection]
tasks = "train:20-32"
parts = 2
[sweep]
budgets = [200]
arms = [{ recipe = "op-short", K = 2, r = 0.5 }, { recipe = "op-failed", r = 1.0 }]
decisive_seeds = 1
fractions = []
[evaluation]
splits = ["test:3"]
attempts = 1
"""


@pytest.mark.slow
def test_a_study_of_a_real_model_goes_from_demonstrations_to_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", f"{own}:{own.parent}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config, base = tmp_path / "toy.toml", save_tiny_model(tmp_path / "tiny")
    config.write_text(CONFIG, "utf-8")
    given = ["study", str(config), "--out", str(tmp_path / "study"), "--base", str(base), "--gpus", "0"]
    assert main([*given, "--stop-after", "collection"]) == 0
    assert main(given) == 0
    verdict = json.loads((tmp_path / "study" / "verdict.json").read_text("utf-8"))
    assert verdict["cells"]["evaluated"] == verdict["cells"]["registered"] >= 3
    for cell in (tmp_path / "study" / "cells").glob("*/"):
        run = open_run(cell)
        assert run.read("evaluations").num_rows == 3
        assert run.read("trainings").num_rows == 1
    weights = list((tmp_path / "study").rglob("*.safetensors"))
    assert {file.relative_to(tmp_path / "study").parts[:3] for file in weights} == {
        ("work", "students", "pi_1")
    }
