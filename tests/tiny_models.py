"""Tiny models with random weights, and rows of random ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sft.packing import TrainingRows

VOCABULARY = 97
# More threads would only wait for each other at this size.
torch.set_num_threads(1)


def tiny_config(**changes: Any) -> Any:
    """A Llama of about 50,000 parameters with grouped queries and a tied head."""
    from transformers import LlamaConfig

    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    return LlamaConfig(**(settings | changes))


def random_rows(n: int, *, seed: int = 0, longest: int = 40, classes: int = 2) -> TrainingRows:
    """n rows of random ids; a random part of each, but never its first id, is a target."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(4, longest, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    targets = rng.random(offsets[-1]) < 0.4
    targets[offsets[1:] - 1] = True
    targets[offsets[:-1]] = False
    depth = np.where(targets, rng.integers(1, 4, len(targets)), 0)
    return TrainingRows(
        rng.integers(2, VOCABULARY, len(targets)).astype(np.int32),
        targets,
        depth.astype(np.int16),
        np.where(targets, (np.repeat(np.arange(n), lengths) + depth) % classes, 0).astype(np.int32),
        offsets.astype(np.int64),
        tuple(f"class{c}" for c in range(classes)),
        tuple(f"task{i // 2}" for i in range(n)),
    )
