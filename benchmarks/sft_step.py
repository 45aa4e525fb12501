"""Tokens a second, MFU and peak memory of one GPU, beside TRL's SFTTrainer.

    python -m benchmarks sft_step --model 3b --run ours:torch:compile:3 --out step.jsonl
    python -m benchmarks sft_step --model 3b --run trl:torch:liger:3 --out step.jsonl

A run is engine:attention:kernels:packs, where `packs` is how many sequences of 4,096 ids one forward pass
takes. Both engines get the same model (random weights of a real shape, bf16), the same rows (lengths and
targets like an agent's traces), fused AdamW, no recomputation, and steps of 64 rows.
TRL packs best-fit-decreasing without contamination; `torch` gives it PyTorch's variable-length kernel.
One engine a process: Liger replaces functions of transformers for everything that runs after it.
"""

from __future__ import annotations

import gc
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.busy import machine
from benchmarks.flops import H100_BF16, parameters, step_flops
from benchmarks.sft_profile import Profile
from sft import attention
from sft.model import load, prepare
from sft.optim import make_optimizer, rate
from sft.packing import TrainingRows, batches
from sft.settings import Settings
from sft.train import optimizer_step
from sft.world import World

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTH = 4096
ROWS_A_STEP = 64


SHAPES = {
    "3b": ("Qwen2Config", 151_936, 2048, 11_008, 36, 16, 2, 32_768),  # Qwen2.5-3B
    "135m": ("LlamaConfig", 49_152, 576, 1536, 30, 9, 3, 8192),  # SmolLM2-135M
    "check": ("LlamaConfig", 512, 256, 512, 2, 4, 2, 1024),  # heads as wide as fast kernels want them
    "tiny": ("LlamaConfig", 512, 64, 128, 2, 4, 2, LENGTH),
}
"""Of published models: ids, hidden and intermediate size, layers, heads, key-value heads, positions."""


def config_of(name: str) -> Any:
    """A shape as a config; nothing is downloaded."""
    import transformers

    kind, ids, hidden, intermediate, layers, heads, kv_heads, positions = SHAPES[name]
    return getattr(transformers, kind)(
        vocab_size=ids,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
    )


def make_rows(n: int, *, vocabulary: int, share: float, seed: int = 0) -> TrainingRows:
    """Rows of 200 to 4,096 ids, 1,000 on average; turns of 40 ids, of which about `share` are targets."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(np.exp(rng.normal(6.7, 0.65, n)), 200, LENGTH).astype(np.int64)
    turns = rng.random(int(lengths.sum()) // 40 + 1) < share
    targets = np.repeat(turns, 40)[: lengths.sum()].copy()
    return random_rows(rng, lengths, targets, least=5, vocabulary=vocabulary)


def random_rows(
    rng: np.random.Generator, lengths: Any, targets: Any, *, least: int, vocabulary: int
) -> TrainingRows:
    """Rows of random ids; the last of each is a target, the first is none."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    targets[offsets[1:] - 1] = True
    targets[offsets[:-1]] = False
    ids = rng.integers(least, vocabulary, len(targets)).astype(np.int32)
    zero, clusters = np.zeros(len(targets), np.int32), tuple(map(str, range(len(lengths))))
    return TrainingRows(ids, targets, targets.astype(np.int16), zero, offsets, ("all",), clusters)


def ours(
    config: Any, rows: TrainingRows, *, timer: Timer, kernel: str, kernels: str, packs: int, **_: Any
) -> dict[str, Any]:
    settings = Settings(
        lr=1e-5,
        batch=ROWS_A_STEP,
        row_tokens=LENGTH,
        epochs=1,
        pack_tokens=LENGTH * packs,
        attention=kernel,
        kernels=kernels,
        precision="bf16" if DEVICE.type == "cuda" else "fp32",
    )
    report, losses = trained(config, rows, settings, timer, World(0, 1, DEVICE))
    return report | {"loss_first": losses[0], "loss_last": losses[-1]}


def trained(
    config: Any, rows: TrainingRows, settings: Settings, timer: Timer, world: World
) -> tuple[dict[str, Any], list[float]]:
    """One epoch of our training: what the timer says and how full packs are; the loss of every step."""
    with world.device:
        model = load(config, settings)
    n = parameters(model)
    objective = prepare(model, settings, world)
    optimizer = make_optimizer(objective, settings)
    kernel = attention.choose(settings, world.device)
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    losses, filled, room = [], 0, 0
    size, pad = settings.batch, settings.kernels == "compile"
    steps = -(-len(rows) // size)
    capacity = settings.pack_tokens
    # A collection of Python's garbage would stop one GPU, and with it all others.
    gc.collect()
    gc.freeze()
    for k, batch in enumerate(
        batches(rows, batch=size, capacity=capacity, seed=0, epoch=0, world=world.size, pad=pad)
    ):
        filled += batch.ids
        room += sum(len(p.ids) for p in batch.packs)
        lr = rate(k, steps, settings)
        nll, _ = optimizer_step(objective, optimizer, batch, lr=lr, clip=1.0, kernel=kernel, world=world)
        losses.append(nll / batch.targets)
        timer.step(batch.ids)
    gc.unfreeze()
    report = timer.report(config, n, rows.take(timer_rows(rows, timer, size)).lengths)
    report |= {"attention": kernel, "packs": len(batch.packs), "pack_fill": round(filled / room, 4)}
    return report, [round(loss.item(), 6) for loss in losses]


def timer_rows(rows: TrainingRows, timer: Timer, batch: int) -> list[int]:
    """The rows of the timed steps, in training order."""
    order = np.random.default_rng([0, 0]).permutation(len(rows)).tolist()
    return order[timer.warm * batch : timer.last * batch]


class Timer:
    """Seconds and ids of the steps after `warm`, read off the GPU without stopping it between steps.

    With `profiled`, the last step is profiled and not timed: where its time went is printed.
    """

    def __init__(self, warm: int, *, steps: int, profiled: bool = False) -> None:
        self.warm, self.last, self.done, self.ids = warm, steps - profiled, 0, 0
        self.profile = Profile() if profiled else None
        self.marks: list[Any] = []

    def step(self, ids: int) -> None:
        self.done += 1
        if self.warm <= self.done <= self.last:
            self.marks.append(_mark())
            self.ids += ids if self.done > self.warm else 0
        if self.profile and self.done == self.last:
            self.profile.start()
        elif self.profile and self.done > self.last:
            print(json.dumps({"profile": self.profile.stop()}), flush=True)

    def report(self, config: Any, n: int, lengths: Any) -> dict[str, Any]:
        each = [_between(a, b) for a, b in itertools.pairwise(self.marks)]
        flops = step_flops(config, n, lengths) / float(lengths.sum())
        rate_ = self.ids / sum(each)
        report = {
            "tokens_s": round(rate_, 1),
            "mfu": round(rate_ * flops / H100_BF16, 4),
            "steps": len(each),
            "step_s": [round(s, 4) for s in each],
        }
        if DEVICE.type == "cuda":
            report["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            report["reserved_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)
            report["alloc_retries"] = torch.cuda.memory_stats().get("num_alloc_retries", 0)
        return report


def _mark() -> Any:
    if DEVICE.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(a: Any, b: Any) -> float:
    if DEVICE.type != "cuda":
        return float(b - a)
    b.synchronize()
    return float(a.elapsed_time(b)) / 1e3


def trl(
    config: Any, rows: TrainingRows, *, steps: int, timer: Timer, kernel: str, kernels: str, packs: int
) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    cuda = DEVICE.type == "cuda"
    name = {"flash": "flash_attention_4", "torch": _varlen_for_trl(), "flex": "flex_attention"}.get(
        kernel, kernel
    )
    torch.manual_seed(0)
    with DEVICE:
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16 if cuda else torch.float32, attn_implementation=name
        )
    n = parameters(model)
    parts = [slice(int(a), int(b)) for a, b in zip(rows.offsets, rows.offsets[1:], strict=False)]
    data = Dataset.from_dict(
        {
            "input_ids": [rows.ids[p].tolist() for p in parts],
            "labels": [np.where(rows.targets[p], rows.ids[p], -100).tolist() for p in parts],
        }
    )
    ids_a_step = int(rows.lengths.sum()) / steps
    accumulate = max(1, round(ids_a_step / (packs * LENGTH)))
    arguments = SFTConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=packs,
        gradient_accumulation_steps=accumulate,
        max_steps=steps,
        packing=True,
        packing_strategy="bfd",
        max_length=LENGTH,
        gradient_checkpointing=False,
        optim="adamw_torch_fused",
        bf16=cuda,
        use_cpu=not cuda,
        learning_rate=1e-5,
        lr_scheduler_type="cosine",
        use_liger_kernel=kernels == "liger",
        torch_compile=kernels == "compile",
        dataloader_pin_memory=cuda,
        dataloader_num_workers=2 if cuda else 0,
        report_to=[],
        save_strategy="no",
        logging_nan_inf_filter=False,  # it would stop the GPU at every pass
        logging_steps=steps,
        disable_tqdm=True,
    )

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            timer.step(0)

    tokenizer = _tokenizer(config.vocab_size)
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=data, processing_class=tokenizer, callbacks=[Clock()]
    )
    lengths = [len(x) for x in trainer.train_dataset["input_ids"]]
    trainer.train()
    timer.ids = round(float(np.mean(lengths)) * packs * accumulate * (timer.last - timer.warm))
    report = timer.report(config, n, rows.lengths)
    history = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    return report | {
        "loss_mean": history[-1],
        "accumulation": accumulate,
        "pack_fill": round(float(np.mean(lengths)) / LENGTH, 4),
    }


def _varlen_for_trl() -> str:
    """PyTorch's variable-length kernel under the names that TRL's packed batches carry."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    def attend(module: Any, q: Any, k: Any, v: Any, mask: Any, **more: Any) -> Any:
        docs = attention.Documents("torch", more["cu_seq_lens_q"], int(more["max_length_q"]))
        return attention._torch_varlen(q, k, v, docs, scale=more["scaling"], window=None), None

    AttentionInterface.register("torch_varlen", attend)
    AttentionMaskInterface.register("torch_varlen", lambda *_, **__: None)
    return "torch_varlen"


def _tokenizer(size: int) -> Any:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(size)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "w0")),
        eos_token="w1",
        pad_token="w2",
        unk_token="w0",
    )


def versions() -> dict[str, Any]:
    return machine("torch", "transformers", "trl", "liger-kernel", "flash-attn-4", "triton")


def noted(line: dict[str, Any], file: Path | None) -> None:
    """Print a line and add it to a file with the versions; then free what the run has left."""
    if file is not None:
        print(json.dumps(line), flush=True)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**line, **versions()}) + "\n")
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main(
    *,
    run: list[str],
    model: Literal["3b", "135m", "tiny"] = "3b",
    steps: int = 7,
    warm: int = 2,  # steps before the clock starts
    share: float = 0.3,  # targets among all ids
    profile: bool = False,  # the last step
    out: Path = Path("sft_step.jsonl"),
) -> None:
    config = config_of(model)
    rows = make_rows(steps * ROWS_A_STEP, vocabulary=config.vocab_size, share=share)
    print(json.dumps(versions()), flush=True)
    for each in run:
        engine, kernel, kernels, packs = each.split(":")
        began = time.perf_counter()
        try:
            if DEVICE.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            report = {"ours": ours, "trl": trl}[engine](
                config,
                rows,
                steps=steps,
                timer=Timer(warm, steps=steps, profiled=profile),
                kernel=kernel,
                kernels=kernels,
                packs=int(packs),
            )
        except Exception as error:  # a benchmark reports what failed and goes on
            report = {"failed": f"{type(error).__name__}: {error}"[:600]}
        line = {"model": model, "run": each, "target_share": share, **report}
        line["wall_s"] = round(time.perf_counter() - began, 1)
        noted(line, out)
