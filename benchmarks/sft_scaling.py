"""Weak scaling and equal loss curves on several GPUs of one host.

    torchrun --nproc-per-node 4 benchmarks/sft_scaling.py --model 3b --mode weak --out scaling.jsonl

weak: every GPU has 64 rows a step, whatever their number. curve: 64 rows a step over all GPUs, so that the
losses must not depend on their number.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sft_step import LENGTH, ROWS_A_STEP, Timer, config_of, make_rows, timer_rows, versions

from sft import attention
from sft.flops import parameters
from sft.model import load, prepare
from sft.optim import make_optimizer, rate
from sft.packing import batches
from sft.settings import Settings
from sft.train import optimizer_step
from sft.world import join, leave


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="3b", choices=["3b", "135m", "tiny"])
    parser.add_argument("--mode", default="weak", choices=["weak", "curve"])
    parser.add_argument("--attention", default="auto")
    parser.add_argument("--kernels", default="compile")
    parser.add_argument("--packs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--out", type=Path, default=Path("sft_scaling.jsonl"))
    chosen = parser.parse_args()
    world = join(sharded=chosen.precision == "fp32_master")
    config = config_of(chosen.model)
    batch = ROWS_A_STEP * (world.size if chosen.mode == "weak" else 1)
    rows = make_rows(batch * chosen.steps, vocabulary=config.vocab_size, share=0.3)
    settings = Settings(
        lr=chosen.lr,
        batch=batch,
        row_tokens=LENGTH,
        epochs=1,
        pack_tokens=LENGTH * chosen.packs,
        attention=chosen.attention,
        kernels=chosen.kernels,
        precision=chosen.precision,
    )
    with world.device:
        model = load(config, settings)
    n = parameters(model)
    objective = prepare(model, settings, world)
    optimizer = make_optimizer(objective, settings)
    half = torch.float32 if chosen.precision == "fp32" else torch.bfloat16
    kernel = attention.choose(chosen.attention, world.device, half)
    timer, losses = Timer(chosen.warm), []
    pad = chosen.kernels == "compile"
    steps = batches(
        rows, batch=batch, capacity=settings.pack_tokens, seed=0, epoch=0, world=world.size, pad=pad
    )
    for k, step in enumerate(steps):
        lr = rate(k, chosen.steps, settings)
        nll, _ = optimizer_step(objective, optimizer, step, lr=lr, clip=1.0, kernel=kernel, world=world)
        losses.append(nll / step.targets)
        timer.step(step.ids)
    if world.rank == 0:
        report = timer.report(config, n, rows.take(timer_rows(rows, chosen.warm, batch)).lengths)
        report["tokens_s_a_gpu"] = round(report["tokens_s"] / world.size, 1)
        report["mfu"] = round(report["mfu"] / world.size, 4)
        line = {
            "mode": chosen.mode,
            "model": chosen.model,
            "gpus": world.size,
            "attention": kernel,
            "kernels": chosen.kernels,
            "precision": chosen.precision,
            "packs": chosen.packs,
            **report,
            "losses": [loss.item() for loss in losses],
        }
        print(json.dumps(line), flush=True)
        with chosen.out.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**line, **versions()}) + "\n")
    leave()


if __name__ == "__main__":
    main()
