"""AdamW and its learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn

from sft.settings import Settings


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Fused AdamW over what is trained; norms and biases do not decay."""
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [g for g in groups if g["params"]],
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        fused=True,
    )


def rate(step: int, steps: int, settings: Settings) -> float:
    """Learning rate of optimizer step `step` (from 0) of `steps`: linear to the peak, then a cosine to 0."""
    rising = math.ceil(settings.warmup * steps)
    if step < rising:
        return settings.lr * (step + 1) / rising
    done = (step - rising) / max(steps - rising, 1)
    return settings.lr * 0.5 * (1 + math.cos(math.pi * done))
