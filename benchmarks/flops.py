"""Floating-point operations of a training step, without recomputation."""

from __future__ import annotations

from typing import Any

from torch import nn

from sft.packing import I64

H100_BF16 = 989e12
"""Dense bf16 operations a second of an H100 SXM, by the vendor's datasheet."""


def parameters(model: nn.Module) -> int:
    """N: parameters that multiply; an input embedding counts only where it is the head, too."""
    total = sum(p.numel() for p in model.parameters())
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    return total if embedding is head else total - embedding.numel()


def step_flops(config: Any, n_parameters: int, lengths: I64) -> float:
    """6 N a token, and causal attention inside documents of these lengths.

    Attention: two products of s^2/2 by the width of all heads, forward once and backward twice.
    """
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    attention = 6.0 * config.num_hidden_layers * heads * width * float((lengths.astype(float) ** 2).sum())
    return 6.0 * n_parameters * float(lengths.sum()) + attention
