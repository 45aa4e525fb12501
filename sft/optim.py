"""AdamW, its learning rate, and gradient clipping."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sft.settings import Settings
from sft.world import World


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


def clip_gradients(parameters: Iterable[Tensor], limit: float, world: World) -> Tensor:
    """Scale gradients to a norm of at most `limit` (0 = off); returns the norm before, on the device.

    Every process sums its own shards and one number is exchanged, where torch's own function exchanges
    one for each parameter.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    own = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]
    norms = torch.stack(torch._foreach_norm(own, 2, torch.float32))
    (total,) = world.sum(norms.square().sum()) if world.mesh is not None else (norms.square().sum(),)
    norm = total.sqrt()
    if limit:
        torch._foreach_mul_(own, torch.clamp(limit / (norm + 1e-6), max=1.0))
    return norm
