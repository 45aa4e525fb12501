"""The settings of a training, and the paper's three presets (Ye et al., appendix on training).

A preset is a `Settings`; `ours` names what the paper does not give and we chose.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from occupancy.record.errors import InputError
from occupancy.record.specs import Count, Fraction, NotNegative, Positive, Range, Seed, Size, check


@dataclass(frozen=True)
class Settings:
    """One training; validated once."""

    lr: Positive
    """Peak learning rate, reached after the warm-up."""
    batch: Count
    """Rows in one optimizer step, over all GPUs, however they are packed."""
    row_tokens: Annotated[int, Range(2, 2**31 - 1)]
    """Most ids of a row."""
    epochs: Annotated[int, Range(1, 10_000)]
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.01
    """On matrices only, not on norms and biases."""
    warmup: Fraction = 0.1
    """Fraction of all steps with a rising rate; a cosine to 0 follows."""
    clip: NotNegative = 1.0
    """Largest gradient norm; 0 = off."""
    precision: Literal["bf16", "fp32_master", "fp32"] = "bf16"
    """bf16: parameters, gradients and optimizer state in bf16. fp32_master: parameters and state in fp32,
    products in bf16. fp32: everything in fp32 (CPU)."""
    pack_tokens: Size = 0
    """Ids of one packed sequence on one GPU; 0 = row_tokens."""
    attention: Literal["auto", "flash", "torch", "flex", "sdpa"] = "auto"
    """auto: the first of flash (flash-attn), torch (its own kernel), flex and sdpa that the machine has."""
    kernels: Literal["none", "compile", "liger"] = "none"
    """compile: torch.compile of each layer. liger: Liger's norms, rotary embedding and SwiGLU."""
    checkpointing: bool = False
    """Recompute activations in the backward pass."""
    reshard: bool = False
    """Free gathered parameters between forward and backward, with several GPUs."""
    lora_rank: Annotated[int, Range(0, 65_536)] = 0
    """Train LoRA adapters of this rank on all linear layers, through peft; 0 = all parameters."""
    held_out: Fraction = 0.05
    """Fraction of clusters (tasks) whose rows are never trained on."""
    rule: Literal["held_out_nll", "last"] = "held_out_nll"
    """Which epoch's checkpoint is chosen: the lowest held-out NLL per target, or the last."""
    seed: Seed = 0
    ours: tuple[str, ...] = ("clip", "eps", "held_out", "rule")
    """Fields that the paper does not give."""

    def __post_init__(self) -> None:
        if not self.pack_tokens:
            object.__setattr__(self, "pack_tokens", self.row_tokens)
        for name in ("betas", "ours"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        check(self, of="training settings", hashed=True)
        if len(self.betas) != 2 or not all(isinstance(b, float) and 0 <= b < 1 for b in self.betas):
            raise InputError(f"training settings: betas={self.betas!r}: expected two numbers in [0, 1)")
        if self.pack_tokens < self.row_tokens:
            raise InputError(
                f"pack_tokens={self.pack_tokens} is less than row_tokens={self.row_tokens}: a row would fit "
                f"in no pack; raise pack_tokens or lower row_tokens"
            )

    def to_json(self) -> str:
        """The settings as JSON, keys sorted."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @property
    def hash(self) -> str:
        """16 hex digits; two trainings with equal data and hash are the same training."""
        return hashlib.blake2b(self.to_json().encode(), digest_size=8).hexdigest()

    def replace(self, **changes: Any) -> Settings:
        """A copy with some fields changed; an unknown field is named."""
        known = {f.name for f in dataclasses.fields(self)}
        if unknown := sorted(set(changes) - known):
            raise InputError(f"unknown training settings {unknown}: expected some of {sorted(known)}")
        if "row_tokens" in changes and "pack_tokens" not in changes and self.pack_tokens == self.row_tokens:
            changes["pack_tokens"] = changes["row_tokens"]
        return dataclasses.replace(self, **changes)


PRESETS = {
    "hotpotqa": Settings(lr=3e-5, batch=64, row_tokens=4096, epochs=3),
    "alfworld": Settings(lr=5e-5, batch=16, row_tokens=16_384, epochs=8),
    "terminal": Settings(
        lr=4e-5,
        batch=16,
        row_tokens=32_768,
        epochs=7,
        betas=(0.9, 0.98),
        weight_decay=0.0,
        ours=("clip", "held_out", "precision", "row_tokens", "rule", "weight_decay"),
    ),
}


def preset(name: str) -> Settings:
    """The settings of that name."""
    if name not in PRESETS:
        raise InputError(f"no preset {name!r}: expected one of {', '.join(sorted(PRESETS))}")
    return PRESETS[name]
