"""vLLM in this process as an engine, with prefix caching and thousands of requests in flight."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

from agentloop.policies.orphans import end_with
from agentloop.policies.token_policy import Sampled, TokenSpec, stop_ids
from agentloop.render.codec import Codec
from agentloop.types import PolicyFailed
from occupancy.record.errors import MissingExtra, RunError


async def open_vllm(spec: TokenSpec, codec: Codec) -> VllmEngine:
    """Load the model; takes half a minute to minutes."""
    try:
        from vllm import SamplingParams
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.sampling_params import RequestOutputKind
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.engine.exceptions import EngineDeadError
    except ImportError as error:
        raise MissingExtra("vllm", "vllm") from error
    given: dict[str, Any] = {
        "model": spec.folder,
        "dtype": spec.dtype,
        "enable_prefix_caching": True,
        "enforce_eager": bool(spec.eager),
        # Its statistics are not used, and the thread that plays the episodes would compute them.
        "disable_log_stats": True,
        "worker_extension_cls": f"{__name__}.TakesWeights",
    }
    given |= {"max_model_len": spec.window} if spec.window else {}
    given |= {"gpu_memory_utilization": spec.memory} if spec.memory else {}
    if spec.cache_gib:
        # The fraction says no more than how much must be free at the start.
        given |= {"kv_cache_memory_bytes": int(spec.cache_gib * 2**30)}
        given |= {"gpu_memory_utilization": spec.memory or 0.05}
    if spec.at_once:
        given |= {"max_num_seqs": spec.at_once}
        # A graph for every eighth batch size takes most of the start; batches are padded to the next power.
        sizes = sorted({*(2**k for k in range(spec.at_once.bit_length())), spec.at_once})
        given |= {"compilation_config": {"cudagraph_capture_sizes": sizes}}
    # The batch sizes of vllm.LLM: without a context, vLLM takes those of its smallest machines.
    engine = await asyncio.to_thread(
        AsyncLLM.from_engine_args, AsyncEngineArgs(**given), usage_context=UsageContext.LLM_CLASS
    )
    # After a kill -9 its processes would hold the memory that the same command needs.
    await engine.collective_rpc("end_with", args=(os.getpid(),))
    # What loading made lives as long as the engine: the garbage collector need not walk it again.
    gc.freeze()
    stops = sorted(stop_ids(codec))

    def sampling(seed: int) -> Any:
        return SamplingParams(
            max_tokens=spec.max_tokens,
            temperature=spec.temperature,
            top_p=spec.top_p,
            seed=seed % 2**63,
            stop_token_ids=stops,
            logprobs=0 if spec.logprobs else None,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    return VllmEngine(engine, sampling, EngineDeadError)


class VllmEngine:
    """One vLLM engine."""

    def __init__(self, engine: Any, sampling: Any, dead: type[Exception]) -> None:
        self._engine, self._sampling, self._dead = engine, sampling, dead
        self.window = int(engine.model_config.max_model_len)

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        """Sample one turn with its own seed."""
        stream = self._engine.generate({"prompt_token_ids": prompt}, self._sampling(seed), request)
        try:
            (output,) = [output async for output in stream]
        except self._dead as error:
            raise RunError(
                f"vLLM's engine has ended ({error}): its log says why; run the same command again"
            ) from error
        except (RuntimeError, ValueError) as error:
            raise PolicyFailed(f"the engine failed: {type(error).__name__}: {error}") from error
        (turn,) = output.outputs
        return Sampled(tuple(turn.token_ids), turn.cumulative_logprob)

    async def load(self, folder: str) -> None:
        """Take a checkpoint's weights, in place; keys and values of the old ones are forgotten."""
        try:
            await self._engine.collective_rpc("take_weights", args=(folder,))
            forgotten = await self._engine.reset_prefix_cache()
        except Exception as error:  # whatever was raised in the engine's own process
            raise RunError(f"vLLM cannot take the weights of {folder}: {error}") from error
        if not forgotten:
            raise RunError(f"vLLM still plays: expected no request in flight when it takes {folder}")

    async def close(self) -> None:
        """End the engine's processes."""
        self._engine.shutdown()


class TakesWeights:
    """What vLLM mixes into its workers: methods that the engine calls in each of them by name."""

    def end_with(self, owner: int) -> None:
        """End the engine's processes once the one that started it has ended."""
        end_with(owner)

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
