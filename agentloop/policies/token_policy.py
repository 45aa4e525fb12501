"""A model in this process as a policy: token ids in, token ids out.

    vllm:FOLDER[,NAME=VALUE...]            agentloop.policies.vllm_engine
    transformers:FOLDER[,NAME=VALUE...]    agentloop.policies.transformers_engine

The folder holds model, tokenizer and chat template. An engine takes a prompt's ids and gives the sampled
ones; what they spell, where they end and whether they fit is decided here, the same for every engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from itertools import count
from typing import NamedTuple, Protocol

from agentloop.policies.prompt_ids import PromptIds
from agentloop.render.codec import Codec, decode, load_codec
from agentloop.types import Answer, Ask, ContextOverflow, Traits, Usage
from occupancy.record.errors import InputError

ENGINES = ("vllm", "transformers")


@dataclass(frozen=True)
class TokenSpec:
    """A model's folder and how it is sampled."""

    folder: str
    max_tokens: int = 256
    """Most output tokens of a turn, the one that closes it included."""
    temperature: float = 1.0
    """0: greedy."""
    top_p: float = 1.0
    window: int = 0
    """Most tokens of prompt and turn together; 0: what the model was made for."""
    dtype: str = "auto"
    """auto, float32, bfloat16 or float16."""
    memory: float = 0.0
    """Share of the memory that the engine may take; 0: the engine's own default."""
    at_once: int = 0
    """Most requests that the engine runs at a time; 0: its own default."""
    logprobs: int = 1
    """0: turns come without their log probability, which engines give slowly."""
    eager: int = 0
    """1: no CUDA graphs and no compilation: starts sooner, runs slower (vLLM)."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1 or self.temperature < 0 or not 0 < self.top_p <= 1:
            raise InputError(
                f"max_tokens={self.max_tokens}, temperature={self.temperature:g}, top_p={self.top_p:g}: "
                "expected "
                f"at least 1, at least 0, and a share above 0"
            )


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
    seeded: bool
    """Whether equal seeds give equal turns."""

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        """Sample one turn; it ends at a stop token or at the spec's max_tokens."""
        ...

    async def close(self) -> None:
        """Give the memory back."""
        ...


Opening = Callable[[TokenSpec, Codec], Awaitable[Engine]]


class TokenPolicy:
    """A model in this process; it is loaded when first asked, in the loop that asks."""

    def __init__(self, spec: TokenSpec, codec: Codec, opening: Opening) -> None:
        self._spec, self._codec, self._opening = spec, codec, opening
        self._prompts = PromptIds(codec)
        self._engine: Engine | None = None
        self._loading: Awaitable[Engine] | None = None
        self._number = count()
        self.traits = Traits(
            gives=frozenset({"text", "usage", "token_ids"} | ({"logprob"} if spec.logprobs else set())),
            most_output=spec.max_tokens,
            tokenizer=spec.folder,
        )

    async def __call__(self, ask: Ask) -> Answer:
        """One turn; ContextOverflow where prompt and turn would not fit the window."""
        engine = await self._loaded()
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
        if self._engine is not None:
            await self._engine.close()

    async def _loaded(self) -> Engine:
        if self._engine is None:
            if self._loading is None:
                import asyncio

                self._loading = asyncio.ensure_future(self._opening(self._spec, self._codec))
            self._engine = await self._loading
        return self._engine


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
    """Tokens that end a turn: the one that the template closes turns with, and the tokenizer's own."""
    eos = codec.tokenizer.eos_token_id
    return frozenset({codec.closing_ids[-1]} | ({eos} if eos is not None else set()))


def open_token_policy(spec: str) -> TokenPolicy:
    """The policy that `vllm:…` or `transformers:…` names."""
    engine, _, rest = spec.partition(":")
    parsed = parse_tokens(rest)
    opening: Opening
    if engine == "vllm":
        from agentloop.policies.vllm_engine import open_vllm

        opening = open_vllm
    else:
        from agentloop.policies.transformers_engine import open_transformers

        opening = open_transformers
    return TokenPolicy(parsed, load_codec(parsed.folder), opening)


def parse_tokens(text: str) -> TokenSpec:
    """FOLDER[,NAME=VALUE...]; what cannot be read is named."""
    folder, *pairs = text.split(",")
    kinds: dict[str, type[int] | type[float] | type[str]] = {
        f.name: {"int": int, "float": float}.get(str(f.type), str)
        for f in fields(TokenSpec)
        if f.name != "folder"
    }
    given: dict[str, int | float | str] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in kinds or name in given:
            raise InputError(
                f"setting {name!r} of {folder} is unknown or given twice: expected {', '.join(kinds)}"
            )
        try:
            given[name] = kinds[name](value)
        except ValueError:
            raise InputError(f"{name}={value!r} of {folder}: expected {kinds[name].__name__}") from None
    return TokenSpec(folder, **given)  # type: ignore[arg-type]
