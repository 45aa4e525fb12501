"""Every way to train that needs a GPU, small: losses and gradients beside the CPU's in fp32.

    python -m benchmarks sft_gpu_check --out check.jsonl

One line a check: `distance` is from the CPU's fp32 loss (relative) and gradient (norm of the difference over
the norm), or from the training that it must repeat. Kernels that the machine lacks are named as absent.
`--only` chooses checks by a part of their names.
"""

from __future__ import annotations

import importlib.util
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.sft_step import SHAPES, config_of, noted, random_rows
from occupancy.record.errors import InputError, RunError
from sft import attention, checkpoint
from sft.model import DevicePack, load, prepare
from sft.packing import TrainingRows, make_batch
from sft.settings import Settings
from sft.train import train
from sft.world import World, join, leave

CPU = World(0, 1, torch.device("cpu"))
FP32, HALF = 2e-5, 4e-2


def sliding() -> Any:
    """A Gemma 3 whose window is shorter than most documents."""
    from transformers import Gemma3TextConfig

    shape = config_of("check").to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    kept = {k: shape[k] for k in (*names, "num_key_value_heads", "head_dim")}
    return Gemma3TextConfig(**kept, sliding_window=32, query_pre_attn_scalar=64)


def rows_of(n: int, seed: int = 0) -> TrainingRows:
    """Rows of 16 to 255 ids, about 40 % of them targets."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(16, 256, n)
    targets = rng.random(lengths.sum()) < 0.4
    return random_rows(rng, lengths, targets, least=2, vocabulary=SHAPES["check"][1])


def settings(**changes: Any) -> Settings:
    given = Settings(lr=3e-3, batch=4, row_tokens=256, epochs=2, pack_tokens=1024, held_out=0.2)
    return given.replace(**changes)


def save(model_config: Any, folder: Path) -> Path:
    """A checkpoint of random weights, so that every precision starts from the same numbers."""
    chosen = settings(precision="fp32")
    checkpoint.export(folder, prepare(load(model_config, chosen), chosen, CPU), None, CPU)
    return folder


def one_batch(base: Path, chosen: Settings, world: World) -> tuple[float, torch.Tensor]:
    """Loss and whole gradient [parameters] of one batch, on the CPU."""
    objective = prepare(load(base, chosen), chosen, world)
    kernel = attention.choose(chosen, world.device)
    rows = rows_of(12)
    batch = make_batch(rows, range(len(rows)), capacity=1024, pad=chosen.kernels == "compile")
    scale = torch.tensor(1 / batch.targets, device=world.device)
    total = 0.0
    for pack in batch.packs:
        loss, _ = objective(DevicePack(pack, kernel=kernel, device=world.device), scale)
        loss.backward()
        total += float(loss.detach())
    parts = [p.grad for p in objective.parameters() if p.grad is not None]
    full = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in parts]
    return total, torch.cat([g.detach().float().cpu().flatten() for g in full])


def against_cpu(base: Path, limit: float, world: World, **changes: Any) -> dict[str, Any]:
    """The same weights and batch here and on the CPU; bf16 rounds the weights, too."""
    chosen = settings(**changes)
    # First, because Liger replaces functions of transformers for good.
    plain = {"precision": "fp32", "attention": "sdpa", "kernels": "none", "checkpointing": False}
    wanted, reference = one_batch(base, chosen.replace(**plain), CPU)
    got, gradient = one_batch(base, chosen, world)
    loss = abs(got / wanted - 1)
    slope = float((gradient - reference).norm() / reference.norm())
    return {"loss": loss, "gradient": slope, "ok": loss <= limit / 10 and slope <= limit}


def curves(first: Any, second: Any, limit: float) -> dict[str, Any]:
    """Largest relative distance of two loss curves."""
    away = float(np.max(np.abs(np.asarray(first) / np.asarray(second) - 1)))
    return {"loss": away, "steps": len(first), "ok": len(first) == len(second) and away <= limit}


def resumed(base: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    """A training that is stopped after step 3 and started again, beside one that is not."""
    given: dict[str, Any] = {"base": base, "settings": settings(**changes)}
    whole = train(rows_of(16), **given, out=folder / "whole")
    try:
        train(rows_of(16), **given, out=folder / "parts", save_every=1, stop_after=3)
    except RunError:
        parts = train(rows_of(16), **given, out=folder / "parts")
    return curves(parts.losses, whole.losses, FP32)


def learns_like_cpu(base: Path, folder: Path, limit: float, **changes: Any) -> dict[str, Any]:
    """A whole training beside the CPU's loss curve in fp32."""
    plain = {"precision": "fp32", "attention": "sdpa", "kernels": "none"}
    there = cpu_curve(base, settings(**(changes | plain)))
    here = train(rows_of(16), base=base, settings=settings(**changes), out=folder)
    return curves(here.losses, there, limit)


def cpu_curve(base: Path, chosen: Settings) -> list[float]:
    from sft.held_out import split
    from sft.optim import make_optimizer, rate
    from sft.packing import batches
    from sft.train import optimizer_step

    rows, _ = split(rows_of(16), share=chosen.held_out, seed=chosen.seed)
    torch.manual_seed(chosen.seed)
    objective = prepare(load(base, chosen), chosen, CPU)
    optimizer = make_optimizer(objective, chosen)
    steps = chosen.epochs * -(-len(rows) // chosen.batch)
    found: list[float] = []
    for epoch in range(chosen.epochs):
        for batch in batches(rows, batch=chosen.batch, capacity=1024, seed=chosen.seed, epoch=epoch):
            lr = rate(len(found), steps, chosen)
            nll, _ = optimizer_step(
                objective, optimizer, batch, lr=lr, clip=chosen.clip, kernel="sdpa", world=CPU
            )
            found.append(float(nll) / batch.targets)
    return found


def exported(base: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    """A checkpoint as transformers loads it, beside the model that wrote it, sharded layer by layer."""
    from transformers import AutoModelForCausalLM

    world = join(sharded=True)
    chosen = settings(**changes)
    before = torch.cuda.memory_allocated()
    model = load(base, chosen)
    on_host = torch.cuda.memory_allocated() - before
    objective = prepare(model, chosen, world)
    checkpoint.export(folder, objective, None, world)
    rows = rows_of(6)
    batch = make_batch(rows, range(len(rows)), capacity=1024)
    (pack,) = batch.packs
    with torch.no_grad():
        _, nll = objective(DevicePack(pack, kernel="torch", device=world.device), None)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    total = 0.0
    for i in range(len(rows)):
        row = rows.take([i])
        ids = torch.tensor(row.ids[None].astype(np.int64))
        logs = torch.log_softmax(plain(input_ids=ids).logits[0, :-1], -1)
        own = logs.gather(-1, ids[0, 1:, None])[:, 0]
        total -= float(own[torch.from_numpy(row.targets[1:])].sum())
    away = abs(float(nll.sum()) / total - 1)
    return {"loss": away, "device_bytes_at_load": on_host, "ok": away <= HALF / 10 and on_host == 0}


def flash_version() -> str | None:
    if importlib.util.find_spec("flash_attn_interface"):
        return "3"
    if importlib.util.find_spec("flash_attn") is None:
        return None
    return "4" if importlib.util.find_spec("flash_attn.cute") else "2"


def checks(world: World, folder: Path) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    llama, gemma = save(config_of("check"), folder / "llama"), save(sliding(), folder / "gemma")
    flash = f"flash-attn {flash_version() or '(absent)'}"

    def one(base: Path, limit: float, **changes: Any) -> Callable[[], dict[str, Any]]:
        return lambda: against_cpu(base, limit, world, **changes)

    def again(name: str, **changes: Any) -> Callable[[], dict[str, Any]]:
        return lambda: resumed(llama, folder / name, **changes)

    def curve(name: str, limit: float, **changes: Any) -> Callable[[], dict[str, Any]]:
        return lambda: learns_like_cpu(llama, folder / name, limit, **changes)

    return [
        ("fp32, sdpa", one(llama, FP32, precision="fp32", attention="sdpa")),
        ("fp32, flex", one(llama, FP32, precision="fp32", attention="flex")),
        ("bf16, sdpa", one(llama, HALF, attention="sdpa")),
        ("bf16, torch varlen", one(llama, HALF, attention="torch")),
        ("bf16, flex", one(llama, HALF, attention="flex")),
        (f"bf16, {flash}", one(llama, HALF, attention="flash")),
        ("bf16, window, sdpa", one(gemma, HALF, attention="sdpa")),
        ("bf16, window, torch varlen", one(gemma, HALF, attention="torch")),
        (f"bf16, window, {flash}", one(gemma, HALF, attention="flash")),
        ("bf16, compile", one(llama, HALF, kernels="compile")),
        ("bf16, recomputed", one(llama, HALF, checkpointing=True)),
        ("bf16, recomputed, compile", one(llama, HALF, checkpointing=True, kernels="compile")),
        ("resume, fp32", again("a", precision="fp32")),
        ("resume, bf16", again("b")),
        ("resume, fp32_master, sharded", again("c", precision="fp32_master")),
        ("resume, LoRA", again("d", lora_rank=4)),
        ("curve, fp32", curve("e", 1e-4, precision="fp32")),
        ("curve, fp32_master", curve("f", 1e-2, precision="fp32_master")),
        ("curve, bf16", curve("g", 2e-2)),
        ("curve, LoRA", curve("h", 2e-2, lora_rank=4)),
        ("export, sharded at load", lambda: exported(llama, folder / "i")),
        ("bf16, liger", one(llama, HALF, kernels="liger")),
        ("curve, fp32_master, liger", curve("j", 1e-2, precision="fp32_master", kernels="liger")),
    ]


def main(only: str = "", out: Path = Path("sft_gpu_check.jsonl")) -> int:
    if not torch.cuda.is_available():
        print("no GPU here: this check compares a GPU with the CPU")
        return 2
    warnings.filterwarnings("ignore")
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda", 0)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, run in checks(World(0, 1, device), Path(folder)):
            if only not in name:
                continue
            began = time.perf_counter()
            try:
                line: dict[str, Any] = {"check": name, **run()}
            except InputError as error:
                line = {"check": name, "absent": str(error)[:200]}
            except Exception as error:  # a check that breaks has failed; the others go on
                line = {"check": name, "ok": False, "error": f"{type(error).__name__}: {error}"[:500]}
            line["s"] = round(time.perf_counter() - began, 1)
            failed += not line.get("ok", True)
            noted(line, out)
    leave()
    return 1 if failed else 0
