"""transformers' continuous batching as an engine, on a CPU or a GPU.

Its sampler draws for all requests from one generator: turns depend on what else was in the batch, and equal
seeds do not give equal turns. Greedy turns are the same in any batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from agentloop.policies.token_policy import Sampled, TokenSpec, stop_ids
from agentloop.render.codec import Codec
from occupancy.record.errors import InputError, RunError, imported

CPU_MEMORY = 0.1
"""Fraction of the free memory for keys and values on a CPU, where transformers would take most of it."""


async def open_transformers(spec: TokenSpec, codec: Codec) -> TransformersEngine:
    """Load the model; takes seconds to minutes, in a thread."""
    torch, transformers = (imported(name, "agents") for name in ("torch", "transformers"))
    if not hasattr(transformers, "ContinuousBatchingConfig"):
        raise InputError(
            f"transformers {transformers.__version__} lacks ContinuousBatchingConfig: expected 5.8 or newer; "
            f"run: pip install 'transformers>=5.8'"
        )
    cuda = torch.cuda.is_available()
    # bfloat16 is several times slower than float32 on most CPUs.
    dtype = spec.dtype if spec.dtype != "auto" or cuda else "float32"
    sampling = transformers.GenerationConfig(
        max_new_tokens=spec.max_tokens,
        do_sample=spec.temperature > 0,
        temperature=spec.temperature if spec.temperature > 0 else None,
        top_p=spec.top_p if spec.temperature > 0 else None,
        top_k=0 if spec.temperature > 0 else None,
        eos_token_id=sorted(stop_ids(codec)),
        pad_token_id=codec.tokenizer.pad_token_id,
    )
    memory = spec.memory or (0.0 if cuda else CPU_MEMORY)
    batching = transformers.ContinuousBatchingConfig(
        max_memory_percent=memory or None,
        max_requests_per_batch=spec.at_once or None,
        return_logprobs=bool(spec.logprobs),
    )

    def start(folder: str) -> tuple[Any, int]:
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, device_map="cuda" if cuda else None
            )
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} holds no model that transformers can load: {error}") from error
        model.eval()
        window = spec.window or int(getattr(model.config, "max_position_embeddings", 0))
        if window < 1:
            raise InputError(f"{folder} does not say how long its contexts may be: give window=TOKENS")
        manager = model.init_continuous_batching(
            generation_config=sampling, continuous_batching_config=batching
        )
        manager.start()
        return manager, window

    engine = TransformersEngine(start, logprobs=spec.logprobs)
    await engine.load(spec.folder)
    return engine


class TransformersEngine:
    """A running batch that requests join and leave."""

    def __init__(self, start: Callable[[str], tuple[Any, int]], *, logprobs: bool) -> None:
        self._start, self._logprobs = start, logprobs
        self._manager: Any = None
        self.window = 0

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        """Sample one turn; `seed` changes nothing."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(output: Any) -> None:
            if output.is_finished() and not done.done():
                done.set_result(output)

        self._manager.register_result_handler(request, tell)
        if self._manager.add_request(prompt, request_id=request) is None:
            raise self._ended("it takes no more requests")
        try:
            output = await done
        except asyncio.CancelledError:
            self._manager.cancel_request(request)
            raise
        if output.error:
            raise self._ended(output.error)
        logprob = float(sum(output.logprobs)) if self._logprobs else None
        return Sampled(tuple(output.generated_tokens), logprob)

    def _ended(self, why: str) -> RunError:
        # Its errors are of memory and of the engine itself: an end of the run, and no data about the model.
        return RunError(
            f"transformers' engine has ended ({why}): give it other memory= or at_once=, and run the same "
            f"command again"
        )

    async def load(self, folder: str) -> None:
        """Load a checkpoint, in the place of the old one and with a new cache."""
        await self.close()
        self._manager = None
        self._manager, self.window = await asyncio.to_thread(self._start, folder)

    async def close(self) -> None:
        """Stop the batch."""
        if self._manager is not None:
            await asyncio.to_thread(self._manager.stop, block=True, timeout=30.0)
