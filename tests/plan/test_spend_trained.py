"""`plan --train` and `spend` with the product's own buyer and a model that is really trained, on a CPU."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from families import tokenizer_of
from tiny_models import tiny_config

from analysis.cli import main
from analysis.curves.arms import arms_of
from analysis.plan.read import teacher_tokens
from analysis.spend.state import charged
from occupancy.runs import open_run

TRAIN = """
preset = "alfworld"
tasks = "valid:8"
[set]
lr = 1e-2
epochs = 3
precision = "fp32"
row_tokens = 512
held_out = 0
rule = "last"
batch = 16
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "pi_0"
    tokenizer = tokenizer_of("chatml")
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    config = tiny_config(vocab_size=len(tokenizer), bos_token_id=None, **ids)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def collected(base: Path) -> Path:
    folder = base.with_name("pilot")
    student = ["--student", f"transformers:{base},max_tokens=2", "--teacher", "expert"]
    cheap = ["--pilot", "--tasks", "train:20", "--demo-tasks", "10", "--handback", "0", "--replicates", "1"]
    where = ["--env", "streets:open_streets", "--env-set", "town=here", "--out", str(folder)]
    assert main(["collect", *where, *student, *cheap]) == 0
    (base.parent / "train.toml").write_text(f'base = "{base}"{TRAIN}')
    return folder


@pytest.fixture
def pilot(collected: Path, tmp_path: Path) -> Path:
    """A copy for one test: trainings are kept beside it."""
    return Path(shutil.copytree(collected.parent, tmp_path / "trained")) / collected.name


def planned(pilot: Path, *more: str) -> list[str]:
    budget = ["--budget", str(5 * sum(teacher_tokens(pilot)))]
    return ["plan", str(pilot), *budget, "--out", str(pilot.with_name("PLAN.toml")), *more]


def trained(pilot: Path) -> list[str]:
    return ["--train", str(pilot.with_name("train.toml")), "--trainings", "1"]


def test_a_plan_trains_in_processes_of_its_own(
    pilot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd()}:{Path.cwd() / 'tests'}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(planned(pilot, *trained(pilot), "--json")) == 0
    out, err = capsys.readouterr()
    (made,) = json.loads(out)["trainings"]
    assert (made["tasks"], made["name"]) == (8, "the pilot's successes")
    assert "training 1 of at most 1 begins" in err
    (log,) = (pilot / "trainings" / "logs").iterdir()
    assert log.read_text().count("$ -m analysis.cli") == 2, "both commands are kept, and what they say"
    evaluated = next((pilot / "trainings" / "evaluations").iterdir())
    (player,) = set(open_run(evaluated).read("episodes")["policy"].to_pylist())
    assert player.endswith(",max_tokens=2"), "it is played as the pilot's student was"
    assert not any((pilot / "trainings" / "students").iterdir()), "its weights are not kept"


def in_this_process(arguments: list[str], log: Path) -> Any:
    """What `run_command` does, without the seconds that a process takes to load torch."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(arguments[2:]) == 0
    return json.loads(said.getvalue().splitlines()[-1])


def test_a_plan_is_spent_with_a_model_that_is_trained(
    pilot: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("analysis.plan.product.run_command", in_this_process)
    # Every arm buys both, so that rollouts of a trained student are bought too.
    monkeypatch.setattr(
        "analysis.spend.rounds.arms_of", lambda T, **more: [a for a in arms_of(T) if a.r == 0.5]
    )
    work, price = pilot.parent, sum(teacher_tokens(pilot))
    assert main(planned(pilot)) == 0
    assert main(["spend", f"{work}/PLAN.toml", *trained(pilot), "--out", f"{work}/out"]) == 0
    out, err = capsys.readouterr()
    state = json.loads((work / "out" / "spend.json").read_text())
    assert list(state["steps"])[-1] == "final student"
    bought = [work / "out" / name for name in ("first-demos", "first-contexts", "demos", "contexts")]
    assert sum(map(charged, bought)) == state["spent"] >= sum(sum(teacher_tokens(f)) for f in bought)
    assert 0.8 * 4 * price < state["spent"] <= 4 * price
    tasks = [set(open_run(f).read("episodes")["task_id"].to_pylist()) for f in (pilot, *bought)]
    assert sum(map(len, tasks)) == len(set.union(*tasks)), "each purchase has tasks of its own"
    players = set(open_run(bought[-1]).read("episodes")["policy"].to_pylist())
    assert any("pi_1" in player and "max_tokens=2" in player for player in players)
    final = open_run(state["steps"]["final student"]["evaluation"])
    assert final.info["tasks"] == "valid:8"
    assert "teacher tokens are left" in err
    assert "final student" in out
