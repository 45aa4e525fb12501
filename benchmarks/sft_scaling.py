"""Weak scaling and equal loss curves on several GPUs of one host.

    torchrun --nproc-per-node 4 -m benchmarks sft_scaling --model 3b --mode alone --case liger:3
    torchrun --nproc-per-node 4 -m benchmarks sft_scaling --model 3b --mode weak --case liger:3

alone: every GPU trains for itself, all at the same time: cards differ, and the sharded runs are compared with
the mean card and with the slowest. weak: one sharded training, every GPU has 64 rows a step, whatever their
number. curve: 64 rows a step over all GPUs, so that the losses must not depend on their number.
A case is kernels:packs, and :reshard where parameters are gathered anew for every pass.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Literal

import torch.distributed as dist

from benchmarks.sft_step import LENGTH, ROWS_A_STEP, Timer, config_of, make_rows, noted, trained
from sft.settings import Settings
from sft.world import World, join, leave


def measured(run: str, chosen: argparse.Namespace, world: World) -> dict[str, Any]:
    """One training of `chosen.steps` steps; the numbers are this GPU's own in mode alone."""
    kernels, packs, *more = run.split(":")
    config = config_of(chosen.model)
    own = World(0, 1, world.device) if chosen.mode == "alone" else world
    batch = ROWS_A_STEP * (own.size if chosen.mode == "weak" else 1)
    rows = make_rows(batch * chosen.steps, vocabulary=config.vocab_size, share=0.3)
    settings = Settings(
        lr=chosen.lr,
        batch=batch,
        row_tokens=LENGTH,
        epochs=1,
        pack_tokens=LENGTH * int(packs),
        attention=chosen.attention,
        kernels=kernels,
        precision=chosen.precision,
        reshard="reshard" in more,
    )
    timer = Timer(chosen.warm, steps=chosen.steps, profiled=chosen.profile and world.rank == 0)
    report, losses = trained(config, rows, settings, timer, own)
    return {
        "mode": chosen.mode,
        "model": chosen.model,
        "run": run,
        "gpus": world.size,
        "precision": chosen.precision,
        **report,
        "tokens_s_a_gpu": round(report["tokens_s"] / own.size, 1),
        "mfu": round(report["mfu"] / own.size, 4),
        "losses": losses,
    }


def main(
    *,
    case: list[str],
    model: Literal["3b", "135m", "tiny"] = "3b",
    mode: Literal["alone", "weak", "curve"] = "weak",
    attention: str = "auto",
    steps: int = 7,
    warm: int = 2,
    lr: float = 1e-5,
    precision: str = "bf16",
    profile: bool = False,  # rank 0's last step
    out: Path = Path("sft_scaling.jsonl"),
) -> None:
    chosen = argparse.Namespace(**locals())
    world = join(sharded=precision == "fp32_master")
    for run in case:
        line = measured(run, chosen, world)
        if mode == "alone" and world.size > 1:
            cards: list[Any] = [None] * world.size
            dist.all_gather_object(cards, line["tokens_s"])
            line["cards_tokens_s"] = cards
            line["tokens_s_a_gpu"] = round(sum(cards) / world.size, 1)
        noted(line, out if world.rank == 0 else None)
    leave()
