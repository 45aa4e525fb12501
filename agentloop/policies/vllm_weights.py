"""What vLLM's worker processes do to take other weights: an extension that vLLM mixes into its worker."""

from __future__ import annotations

from typing import Any

EXTENSION = f"{__name__}.TakesWeights"


class TakesWeights:
    """Adds a method that the engine calls in every worker by name."""

    def take_weights(self: Any, folder: str) -> None:
        """Read a checkpoint's weights in place, the head that is tied to the embeddings included."""
        from vllm.model_executor.layers.vocab_parallel_embedding import (
            ParallelLMHead,
            UnquantizedEmbeddingMethod,
        )

        self.reload_weights(weights_path=folder)
        for module in self.model_runner.get_model().modules():
            tied = isinstance(module, ParallelLMHead)
            if tied and isinstance(module.quant_method, UnquantizedEmbeddingMethod):
                # A checkpoint has no tensor for a tied head, and what was made of its weight is then kept:
                # on a CPU a packed copy of the old weight.
                module.quant_method.process_weights_after_loading(module)
