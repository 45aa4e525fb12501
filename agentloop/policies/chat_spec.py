"""What names a model behind an HTTP server: openai:MODEL@BASE_URL[,NAME=VALUE...]

    openai:gpt-4o@https://api.openai.com/v1,max_tokens=512,temperature=0.7
    openai:smol@http://127.0.0.1:8000/v1,token_ids=1

The key is read from the environment variable that `key_env` names, and is nowhere else.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlsplit

from occupancy.record.errors import InputError
from occupancy.record.specs import Count, NotNegative, Positive, Range, check, read

PREFIX = "openai:"
_BOUNDED = (PREFIX, "vllm:", "transformers:")


@dataclass(frozen=True)
class ChatSpec:
    """A model, its server, and the settings of its requests."""

    model: str
    base_url: str
    max_tokens: Count = 1024
    """Most output tokens of a turn, reasoning included."""
    limit_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls it: max_tokens, or max_completion_tokens for some reasoning models."""
    temperature: NotNegative | None = None
    """None: the server's own."""
    top_p: Annotated[float, Range(above=0, most=1)] | None = None
    seed: bool = True
    """1: each turn is sent its own seed. 0: for servers that refuse one."""
    tools: bool = True
    """1: the server's tool interface where the benchmark has tools. 0: text alone."""
    stop: bool = False
    """1: a turn in text ends at the benchmark's stop strings and keeps them. For vLLM: others refuse
    include_stop_str_in_output, or cut the string off without naming it."""
    token_ids: bool = False
    """1: ask for sampled ids (vLLM's return_token_ids)."""
    logprobs: bool = False
    """1: ask for the log probability of each sampled token."""
    thinking: Literal["drop", "keep"] = "drop"
    """drop: reasoning that the server separates is counted and left out of the turn. keep: as
    <think>…</think>."""
    tokenizer: str = ""
    """Name of the tokenizer of the ids, where they are asked for; default: the model's name."""
    timeout_s: Positive = 600.0
    """Seconds for one call."""
    key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; unset: no key is sent but the word 'none'."""

    def __post_init__(self) -> None:
        try:
            url = urlsplit(self.base_url)
            known = url.scheme in ("http", "https") and url.hostname and url.port != 0
        except ValueError:  # whose words may hold a password
            known = False
        if not known:
            raise InputError(
                f"the base URL of {self.model} is none: expected http://HOST/v1 or https://HOST:PORT/v1"
            )
        if url.username or url.password or url.query or url.fragment:
            raise InputError(
                f"the base URL of {url.hostname} carries a user, a password, a query or a fragment: it is "
                f"written into the run; put the key into the environment variable {self.key_env}"
            )
        if not self.model:
            raise InputError(f"no model is named: expected {PREFIX}MODEL@BASE_URL")
        check(self, of=self.model)
        if self.stop and self.token_ids:
            raise InputError(
                "stop=1 with token_ids=1: a stop string may end inside a token, so that ids and text differ; "
                "leave one of them out"
            )

    @property
    def key(self) -> str:
        """The key, from the environment; InputError for one that no header can carry."""
        key = (os.environ.get(self.key_env) or "none").strip()
        if not (key.isascii() and key.isprintable()):
            raise InputError(
                f"the key in {self.key_env} holds a line break or a letter that is not ASCII: copy it again"
            )
        return key


def parse_chat(spec: str) -> ChatSpec:
    """The model that `openai:MODEL@BASE_URL[,NAME=VALUE...]` names; what cannot be read is named."""
    head, *pairs = spec.removeprefix(PREFIX).split(",")
    named = re.fullmatch(r"(.*?)@(\w+://.*)", head)
    if named is None:
        raise InputError(
            f"policy {PREFIX + head!r} names no server: expected {PREFIX}MODEL@BASE_URL, for instance "
            f"{PREFIX}{head}@http://127.0.0.1:8000/v1"
        )
    return read(ChatSpec, pairs, of=named[1], model=named[1], base_url=named[2])


def identity(spec: str) -> str:
    """The part of a policy's name that identifies a run: model and settings, not the server's address.

    A server may come back under another address; another model would be another run. An identity is its own.
    """
    head, *pairs = spec.split(",")
    if not spec.startswith(PREFIX) or not re.search(r"@\w+://", head):
        return spec
    parse_chat(spec)
    kept = [pair for pair in pairs if pair.partition("=")[0] not in ("timeout_s", "key_env")]
    return ",".join([re.sub(r"@\w+://.*", "", head), *kept])


def served(name: str, at: str) -> str:
    """The spec of an `identity` whose model is served at an address; the name alone where there is none."""
    if not (at and name.startswith(PREFIX)):
        return name
    head, *pairs = name.split(",")
    return ",".join([f"{head}@{at}", *pairs])


def bounds_a_turn(policy: str) -> bool:
    """Whether a policy's name holds the most tokens of a turn, as a model's does."""
    return policy.startswith(_BOUNDED)


def address(spec: str) -> str:
    """The address of a policy's server; empty where it has none."""
    return parse_chat(spec).base_url if spec.startswith(PREFIX) else ""
