"""Real trainings of tiny models on the CPU: they learn, resume, and do not depend on how work is spread."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import random_rows, tiny_config

from occupancy.record.errors import DataError, InputError, RunError
from sft.held_out import measure, split
from sft.model import load, prepare
from sft.optim import clip_gradients, rate
from sft.settings import PRESETS, Settings
from sft.train import _chosen, _Progress, train
from sft.world import World


def settings(**changes: Any) -> Settings:
    return Settings(
        lr=1e-2, batch=4, row_tokens=64, epochs=2, precision="fp32", held_out=0.3, warmup=0.1
    ).replace(**changes)


def losses(folder: Path, key: str = "loss") -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [e[key] for e in lines if key in e]


def test_fifty_steps_overfit_a_tiny_model(tmp_path: Path) -> None:
    """The targets are memorised, the student's and environment's ids are not."""
    from transformers import AutoModelForCausalLM

    rows = random_rows(8, seed=4, longest=24)
    chosen = settings(batch=8, epochs=2, held_out=0.0, lr=2e-2, rule="last")
    config = tiny_config(hidden_size=64, intermediate_size=128)
    often = rows.take(list(range(8)) * 25)
    result = train(often, base=config, settings=chosen, out=tmp_path / "out")
    assert len(result.losses) == 50
    assert result.losses[0] > 4.0
    assert result.losses[-1] < 0.1
    model = AutoModelForCausalLM.from_pretrained(result.chosen)
    for i in range(len(rows)):
        row = rows.take([i])
        guess = model(input_ids=torch.tensor(row.ids[None].astype(np.int64))).logits[0].argmax(-1)
        assert (guess[:-1].numpy() == row.ids[1:])[row.targets[1:]].all()


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_a_resumed_training_has_the_same_loss_curve(tmp_path: Path, stop: int) -> None:
    rows = random_rows(14, seed=1)
    whole = train(rows, base=tiny_config(), settings=settings(), out=tmp_path / "whole")
    again: dict[str, Any] = {"base": tiny_config(), "settings": settings(), "out": tmp_path / "parts"}
    with pytest.raises(RunError, match="stopped after step"):
        train(rows, **again, save_every=1, stop_after=stop)
    resumed = train(rows, **again)
    assert resumed.losses == whole.losses
    assert resumed.held_out == whole.held_out
    assert resumed.before == whole.before
    assert whole.before is not None
    assert resumed.chosen.name == whole.chosen.name


def test_another_training_in_the_folder_is_refused(tmp_path: Path) -> None:
    rows = random_rows(6)
    train(rows, base=tiny_config(), settings=settings(epochs=1, held_out=0.0), out=tmp_path / "out")
    with pytest.raises(DataError, match=r"another training \(its \['settings'\] differ\)"):
        train(rows, base=tiny_config(), settings=settings(epochs=1, lr=1.0), out=tmp_path / "out")


def test_packing_does_not_change_the_training(tmp_path: Path) -> None:
    """The same rows in one large pack, or in small ones that are accumulated."""
    rows = random_rows(9, seed=2)
    one = train(rows, base=tiny_config(), settings=settings(pack_tokens=256), out=tmp_path / "a")
    many = train(rows, base=tiny_config(), settings=settings(pack_tokens=64), out=tmp_path / "b")
    np.testing.assert_allclose(one.losses, many.losses, rtol=1e-4)


JOB = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from test_sft_train import settings
from tiny_models import random_rows, tiny_config
from occupancy.record.errors import RunError
from sft.train import train
from sft.world import leave

out = Path(sys.argv[1])
given = dict(rows=random_rows(9, seed=2), base=tiny_config())
train(**given, settings=settings(), out=out / "two")
try:
    train(**given, settings=settings(), out=out / "stopped", save_every=1, stop_after=3)
except RunError:
    train(**given, settings=settings(), out=out / "stopped")
train(**given, settings=settings(precision="fp32_master"), out=out / "half")
train(**given, settings=settings(lora_rank=2), out=out / "lora")
leave()
"""


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """FSDP2 over gloo: the loss curve of one process, after a resume too, and a checkpoint that loads."""
    from transformers import AutoModelForCausalLM

    tests = Path(__file__).parents[1]
    script = tmp_path / "job.py"
    script.write_text(JOB.format(paths=[str(tests.parent), str(tests), str(tests / "sft")]))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = subprocess.run([*command, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = random_rows(9, seed=2)
    one = train(rows, base=tiny_config(), settings=settings(), out=tmp_path / "one")
    np.testing.assert_allclose(losses(tmp_path / "two"), one.losses, rtol=1e-3)
    norms = (losses(tmp_path / name, "grad_norm") for name in ("two", "one"))
    np.testing.assert_allclose(*norms, rtol=1e-3)
    np.testing.assert_allclose(losses(tmp_path / "half"), one.losses, rtol=2e-2)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "two")
    lora = train(rows, base=tiny_config(), settings=settings(lora_rank=2), out=tmp_path / "lora-one")
    np.testing.assert_allclose(losses(tmp_path / "lora"), lora.losses, rtol=1e-3)
    choice = json.loads((tmp_path / "two" / "choice.json").read_text())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "two" / choice["chosen"])
    same = AutoModelForCausalLM.from_pretrained(tmp_path / "one" / choice["chosen"])
    for p, q in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-3)


def test_lora_trains_adapters_only_and_exports_a_plain_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    rows = random_rows(8, seed=6)
    chosen = settings(lora_rank=4, lr=5e-2, epochs=8, held_out=0.0, rule="last")
    config = tiny_config()
    result = train(rows, base=config, settings=chosen, out=tmp_path / "out")
    assert result.losses[-1] < result.losses[0]
    trained = AutoModelForCausalLM.from_pretrained(result.chosen).state_dict()
    start = load(config, chosen).state_dict()
    assert set(trained) == set(start)
    assert torch.equal(trained["model.embed_tokens.weight"], start["model.embed_tokens.weight"])
    assert not torch.equal(
        trained["model.layers.0.mlp.up_proj.weight"], start["model.layers.0.mlp.up_proj.weight"]
    )


def test_held_out_nll_is_counted_by_depth_and_class() -> None:
    rows = random_rows(7, seed=3)
    chosen = settings()
    model = prepare(load(tiny_config(), chosen), chosen, CPU)
    held = measure(model, rows, capacity=64, kernel="sdpa", world=CPU)
    assert held.targets == int(rows.targets.sum())
    for cells in (held.by_depth, held.by_class):
        assert sum(n for _, n in cells.values()) == held.targets
        assert sum(v * n for v, n in cells.values()) / held.targets == pytest.approx(held.nll)
    classes = rows.classes[rows.targets]
    for c, name in enumerate(rows.class_names):
        assert held.by_class[name][1] == int((classes == c).sum())
    for j, (_, n) in held.by_depth.items():
        assert n == int((rows.depth[rows.targets] == j).sum())


CPU = World(0, 1, torch.device("cpu"))


def test_a_cluster_is_never_on_both_sides() -> None:
    rows = random_rows(40)
    kept, held = split(rows, share=0.4, seed=7)
    assert not set(kept.clusters) & set(held.clusters)
    assert len(kept) + len(held) == len(rows)
    assert set(split(rows.take(range(10)), share=0.4, seed=7)[1].clusters) <= set(held.clusters)


@pytest.mark.parametrize(
    ("nll", "rule", "chosen"),
    [
        ((math.nan, 2.0, 1.0, 1.0), "held_out_nll", 2),
        ((math.nan, math.nan), "held_out_nll", 1),
        ((2.0, 1.0, 1.0), "last", 2),
    ],
)
def test_the_checkpoint_with_the_lowest_held_out_loss_is_chosen(
    nll: tuple[float, ...], rule: str, chosen: int
) -> None:
    measured = [{"held_out": {"nll": value}} for value in nll]
    assert _chosen(_Progress(measured=measured), settings(rule=rule)) is measured[chosen]


@pytest.mark.parametrize("rule", ["held_out_nll", "last"])
def test_a_training_may_leave_its_result_alone(tmp_path: Path, rule: str) -> None:
    given: Any = {"base": tiny_config(), "settings": settings(epochs=3, rule=rule)}
    whole = train(random_rows(20), out=tmp_path / "whole", **given)
    alone = train(random_rows(20), out=tmp_path / "alone", only_result=True, **given)
    assert alone.losses == whole.losses
    assert alone.held_out == whole.held_out
    assert [f.name for f in sorted((tmp_path / "alone").iterdir()) if f.is_dir()] == [alone.chosen.name]
    assert alone.chosen.name == whole.chosen.name
    weights = [folder / "model.safetensors" for folder in (alone.chosen, whole.chosen)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6])
def test_clipping_is_torchs(limit: float) -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(5, 3, generator=generator), torch.randn(7, generator=generator)]
    ours, theirs = ([torch.nn.Parameter(v.clone()) for v in values] for _ in range(2))
    for p, q in zip(ours, theirs, strict=True):
        p.grad, q.grad = p.detach().clone(), q.detach().clone()
    norm = clip_gradients(ours, limit, CPU)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, limit or float("inf"))
    assert torch.allclose(norm, wanted)
    for p, q in zip(ours, theirs, strict=True):
        assert torch.allclose(p.grad, q.grad)


def test_the_rate_rises_and_falls_as_a_cosine() -> None:
    chosen = settings(lr=2.0, warmup=0.1)
    rates = [rate(k, 100, chosen) for k in range(100)]
    assert rates[9] == 2.0
    assert rates[:10] == pytest.approx([0.2 * k for k in range(1, 11)])
    assert rates[55] == pytest.approx(1.0)
    assert rates == sorted(rates[:10]) + sorted(rates[10:], reverse=True)


def test_presets_are_the_papers() -> None:
    paper = {"hotpotqa": (3e-5, 64, 4096, 3), "alfworld": (5e-5, 16, 16384, 8)}
    for name, values in paper.items():
        p = PRESETS[name]
        assert (p.lr, p.batch, p.row_tokens, p.epochs) == values
        assert (p.betas, p.weight_decay, p.warmup, p.precision) == ((0.9, 0.95), 0.01, 0.1, "bf16")
    p = PRESETS["terminal"]
    assert (p.lr, p.batch, p.epochs, p.betas, p.eps, p.warmup) == (4e-5, 16, 7, (0.9, 0.98), 1e-8, 0.1)
    assert {"precision", "row_tokens", "weight_decay"} <= set(p.ours)


def test_settings_that_cannot_train_are_refused() -> None:
    with pytest.raises(InputError, match="a row would fit in no pack"):
        settings(pack_tokens=8)
    with pytest.raises(InputError, match="unknown training settings"):
        settings(learning_rate=1.0)
