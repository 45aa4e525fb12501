"""Cross-entropy of a linear head, computed for target positions only and never storing their logits.

Letters: M targets, d width of the hidden state, V vocabulary.

The gradient of every chunk is made while its logits exist, so that nothing of size [M, V] outlives a
chunk. Chunks are as large as `CHUNK_BYTES` allows: with few targets, one chunk reads the head once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CHUNK_BYTES = 1 << 30


def _nll(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    scores = logits.float()
    lse = torch.logsumexp(scores, -1)
    return lse - scores.gather(-1, labels[:, None])[:, 0], lse


def _nll_and_slope(logits: Tensor, labels: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    nll, lse = _nll(logits, labels)
    own = torch.arange(logits.shape[-1], device=logits.device) == labels[:, None]
    slope = (torch.exp(logits.float() - lse[:, None]) - own.float()) * scale
    return nll, slope.to(logits.dtype)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


def _run(function: Callable[..., Any], logits: Tensor, *arguments: Tensor) -> Any:
    return (_compiled(function) if logits.is_cuda else function)(logits, *arguments)


def _chunk(vocabulary: int, hidden: Tensor) -> int:
    return max(256, CHUNK_BYTES // (vocabulary * hidden.element_size()))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, scale: Tensor) -> Any:
        head = weight.to(hidden.dtype)
        d_hidden = torch.empty_like(hidden)
        d_head = torch.empty_like(head) if weight.requires_grad else None
        nll = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
        step = _chunk(len(head), hidden)
        for start in range(0, len(hidden), step):
            part = slice(start, start + step)
            nll[part], slope = _run(_nll_and_slope, hidden[part] @ head.T, labels[part], scale)
            torch.mm(slope, head, out=d_hidden[part])
            if d_head is not None:
                d_head.addmm_(slope.T, hidden[part], beta=float(start > 0))
        ctx.save_for_backward(d_hidden, d_head)
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(nll)
        return nll.sum() * scale, nll

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor, _: Tensor) -> Any:
        d_hidden, d_head = ctx.saved_tensors
        d_weight = None if d_head is None else d_head.mul_(d_loss).to(ctx.weight_dtype)
        return d_hidden.mul_(d_loss), d_weight, None, None


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """`scale` times the summed loss, and the NLL of each target in nats [M] (without gradient).

    Args:
        hidden: [M, d] hidden states that predict the targets.
        weight: [V, d] the head.
        labels: [M] int64 ids of the targets.
        scale: scalar; the loss is multiplied by it.

    Gradients are computed in the forward pass, so that the backward pass may run once only.
    """
    if not len(hidden):
        # Still a function of both, so that every rank has the same gradients to reduce.
        zero = hidden.sum() * 0.0 + weight[:1].sum() * 0.0
        return zero.float(), torch.empty(0, device=hidden.device)
    loss, nll = _LinearCrossEntropy.apply(hidden, weight, labels, scale)
    return loss, nll


@torch.no_grad()
def linear_nll(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """NLL of each target in nats [M], without gradients."""
    head = weight.to(hidden.dtype)
    step = _chunk(len(head), hidden)
    parts = [
        _run(_nll, hidden[a : a + step] @ head.T, labels[a : a + step])[0]
        for a in range(0, len(hidden), step)
    ]
    return torch.cat(parts) if parts else torch.empty(0, device=hidden.device)
