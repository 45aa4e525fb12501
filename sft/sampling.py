"""Turns sampled by the engine that TRL's trainer was given, through the parts that TRL documents.

GRPOTrainer's `rollout_func` gets the trainer, and samples as it likes; TRL's `environment_factory` would
play episodes itself, but as tool calls, and our turns are plain text.
"""

from __future__ import annotations

from typing import Any


def sample(trainer: Any, prompts: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
    """Sampled ids of each prompt up to and with the closing token, and their log probabilities from vLLM."""
    if trainer.use_vllm:
        # TRL has given vLLM the newest weights before it asks for rollouts.
        found = trainer.vllm_generation.generate(prompts=prompts, images=None, num_generations=1)
        return found[1], [[token[0] for token in turn] for turn in found[2]]
    return _with_transformers(trainer, prompts), None


def _with_transformers(trainer: Any, prompts: list[list[int]]) -> list[list[int]]:
    import torch
    from trl.models import unwrap_model_for_generation

    device = trainer.accelerator.device
    longest = max(len(p) for p in prompts)
    stop = trainer.processing_class.eos_token_id
    # Padding stands on the left, and the mask hides it: any id will do.
    ids = torch.tensor([[stop] * (longest - len(p)) + p for p in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
    unwrapped = unwrap_model_for_generation(
        trainer.model_wrapped, trainer.accelerator, generation_kwargs=trainer.generation_kwargs
    )
    with unwrapped as model, torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=trainer.generation_config)
    turns = out[:, longest:].tolist()
    return [turn[: turn.index(stop) + 1] if stop in turn else turn for turn in turns]
