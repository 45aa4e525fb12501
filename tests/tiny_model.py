"""A model of a few thousand random weights with a real tokenizer and template, saved as real ones are."""

from __future__ import annotations

from pathlib import Path

from families import tokenizer_of


def save_tiny_model(place: Path, *, seed: int = 0, family: str = "chatml", **changes: object) -> Path:
    """Write model, tokenizer and template into `place`; 256 positions, unless `changes` say otherwise."""
    import torch
    import transformers

    tokenizer = tokenizer_of(family)
    torch.manual_seed(seed)
    settings: dict[str, object] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.4,
    }
    config = transformers.LlamaConfig(**(settings | changes))
    transformers.LlamaForCausalLM(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place
