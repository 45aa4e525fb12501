"""A model in this process as a policy: token ids in, token ids out.

    vllm:FOLDER[,NAME=VALUE...]            agentloop.policies.vllm_engine
    transformers:FOLDER[,NAME=VALUE...]    agentloop.policies.transformers_engine

The folder holds model, tokenizer and chat template. An engine takes a prompt's ids and gives the sampled
ones; what they spell, where they end and whether they fit is decided here, the same for every engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Annotated, Literal, NamedTuple, Protocol

from agentloop.policies.prompt_ids import PromptIds
from agentloop.render.codec import Codec, decode
from agentloop.types import Answer, Ask, ContextOverflow, Traits, Usage
from occupancy.record.specs import Count, NotNegative, Range, Share, Size, check, read


@dataclass(frozen=True)
class TokenSpec:
    """A model's folder and how it is sampled."""

    folder: str
    max_tokens: Count = 256
    """Most output tokens of a turn, the one that closes it included."""
    temperature: NotNegative = 1.0
    """0: greedy."""
    top_p: Annotated[float, Range(above=0, most=1)] = 1.0
    window: Size = 0
    """Most tokens of prompt and turn together; 0: what the model was made for."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    memory: Share = 0.0
    """Fraction of the memory that the engine may take; 0: the engine's own default."""
    cache_gib: NotNegative = 0.0
    """GiB for keys and values (vLLM), so that it need not measure what is free while others use the same GPU;
    0: what `memory` leaves."""
    at_once: Size = 0
    """Most requests that the engine runs at a time; 0: its own default."""
    logprobs: bool = True
    """0: turns come without their log probability, which engines give slowly."""
    hub: bool = False
    """1: the folder may be a name on the Hugging Face hub, which is downloaded."""
    eager: bool = False
    """1: no CUDA graphs and no compilation: starts sooner, runs slower (vLLM)."""

    def __post_init__(self) -> None:
        check(self, of=self.folder)


class Sampled(NamedTuple):
    """What an engine gives for one prompt."""

    ids: tuple[int, ...]
    """The token that closed the turn included, where one did."""
    logprob: float | None
    """Summed over the ids, under the distribution that was sampled from, in nats."""


class Engine(Protocol):
    """One loaded model."""

    window: int
    """Most tokens of prompt and turn together."""

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        """Sample one turn; it ends at a stop token or at the spec's max_tokens."""

    async def load(self, folder: str) -> None:
        """Take the weights of another checkpoint of this model; no request is in flight."""

    async def close(self) -> None:
        """Give the memory back."""


Opening = Callable[[TokenSpec, Codec], Awaitable[Engine]]


class TokenPolicy:
    """A model in this process; it is loaded when first asked, in the loop that asks."""

    def __init__(self, spec: TokenSpec, codec: Codec, opening: Opening) -> None:
        self._spec, self._codec, self._opening = spec, codec, opening
        self._prompts = PromptIds(codec)
        self._loading: asyncio.Future[Engine] | None = None
        self._number = count()
        self.traits = Traits(
            gives=frozenset({"text", "usage", "token_ids"} | ({"logprob"} if spec.logprobs else set())),
            most_output=spec.max_tokens,
            tokenizer=spec.folder,
        )

    async def __call__(self, ask: Ask) -> Answer:
        """One turn; ContextOverflow where prompt and turn would not fit the window."""
        engine = await self.load()
        prompt = self._prompts.of(ask)
        if len(prompt) + self._spec.max_tokens > engine.window:
            raise ContextOverflow(
                f"{len(prompt)} prompt tokens and {self._spec.max_tokens} of a turn do not fit "
                f"{engine.window}"
            )
        sampled = await engine.sample(prompt, seed=ask.seed, request=f"{next(self._number)}")
        return read_sampled(sampled, self._codec, prompt=len(prompt), counter=self._spec.folder)

    async def close(self) -> None:
        """Give the model's memory back."""
        if self._loading is not None:
            if not self._loading.done():
                await asyncio.wait([self._loading])
            if not self._loading.cancelled() and self._loading.exception() is None:
                await self._loading.result().close()

    async def load(self) -> Engine:
        """The engine, opened where it is not yet; the first turn does it otherwise."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._opening(self._spec, self._codec))
        # An episode whose time is over while the model loads gives up alone: the others wait for the same.
        return await asyncio.shield(self._loading)


def read_sampled(sampled: Sampled, codec: Codec, *, prompt: int, counter: str) -> Answer:
    """The turn that sampled ids spell; without the token that closed it, which stays in the ids."""
    closed = bool(sampled.ids) and sampled.ids[-1] in stop_ids(codec)
    text = decode(codec, sampled.ids[:-1] if closed else sampled.ids)
    return Answer(
        text,
        Usage(len(sampled.ids), counter, prompt=prompt),
        "stop" if closed else "length",
        sampled.ids,
        sampled.logprob,
    )


def stop_ids(codec: Codec) -> frozenset[int]:
    """Tokens that end a turn: those that the template closes turns with, and the tokenizer's own."""
    eos = codec.tokenizer.eos_token_id
    closing = {codec.closing_ids[-1], *(ids[-1] for _, ids in codec.closings.values())}
    return frozenset(closing | ({eos} if eos is not None else set()))


def parse_tokens(text: str) -> TokenSpec:
    """FOLDER[,NAME=VALUE...]; what cannot be read is named."""
    folder, *pairs = text.split(",")
    return read(TokenSpec, pairs, of=folder, folder=folder)
