"""One engine for many checkpoints of one model: it stays up and takes the weights of one after another.

Policies of equal settings that differ in their folder alone share it, one at a time. An engine takes a
minute to start and a second to take new weights.
"""

from __future__ import annotations

import asyncio
import filecmp
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentloop.policies.token_policy import Engine, Opening, Sampled, TokenSpec
from agentloop.render.codec import Codec
from occupancy.record.errors import InputError, RunError
from occupancy.record.reading import reading

SAID_OTHERWISE = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})
"""Entries of a model's config.json that differ between checkpoints of one model."""


class _Asked(NamedTuple):
    """What a policy would open an engine of its own with."""

    spec: TokenSpec
    codec: Codec
    opening: Opening


class OneEngine:
    """Opens an engine once, for the first policy that asks; later policies get it with their own weights."""

    def __init__(self) -> None:
        self._first: _Asked | None = None
        self._engine: Engine | None = None
        self._folder = ""
        self._lock = asyncio.Lock()
        self._seen_to_change = False
        self.turn = 0
        """Number of the policy that has the engine now; an earlier one may not ask any more."""
        self.in_flight = 0

    def serve(self, spec: TokenSpec, codec: Codec, opening: Opening) -> Opening:
        """What `TokenPolicy` opens its engine with.

        Raises:
            InputError: the policy's engine, settings, architecture, tokenizer or template are not those of
                the first one.
        """
        asked = _Asked(spec, codec, opening)
        self._first = self._first or asked
        _refuse_other(self._first, asked)
        return partial(self._open, opening)

    async def close(self) -> None:
        """Give the memory back."""
        engine, self._engine = self._engine, None
        self.turn += 1
        if engine is not None:
            await engine.close()

    async def _open(self, opening: Opening, spec: TokenSpec, codec: Codec) -> Engine:
        async with self._lock:
            if self.in_flight:
                raise RunError(
                    f"{spec.folder} cannot be loaded: {self.in_flight} requests to {self._folder} are in "
                    f"flight; let one policy end before the next one begins"
                )
            self.turn += 1
            if self._engine is None:
                self._engine = await opening(spec, codec)
            else:
                await self._take(self._engine, spec.folder, codec, logged=spec.logprobs)
            self._folder = spec.folder
            return _Lease(self, self._engine)

    async def _take(self, engine: Engine, folder: str, codec: Codec, *, logged: bool) -> None:
        # Equal answers, to the last bit of their log probability, would come from the old weights.
        asked = codec.closing_ids if logged and not self._seen_to_change else ()
        probe = await engine.sample([*asked], seed=0, request=f"before-{self.turn}") if asked else None
        try:
            await engine.load(folder)
            if probe is not None:
                after = await engine.sample([*asked], seed=0, request=f"after-{self.turn}")
                self._seen_to_change = after != probe
                if after == probe and not _equal_weights(Path(self._folder), Path(folder)):
                    raise RunError(
                        f"the engine still answers with the weights of {self._folder} after it was given "
                        f"those of {folder}: evaluate each student with an engine of its own"
                    )
        except BaseException:
            # Which weights it holds is not known: the next policy gets a new one.
            self._engine = None
            await engine.close()
            raise


class _Lease:
    """The engine as one policy has it, until the next one is served."""

    def __init__(self, owner: OneEngine, engine: Engine) -> None:
        self._owner, self._engine, self._turn = owner, engine, owner.turn
        self.window = engine.window

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        """Sample one turn, as long as the engine has this policy's weights."""
        owner = self._owner
        if owner.turn != self._turn:
            raise RunError(
                "the engine has taken the weights of another policy: policies with one engine play one "
                "after the other"
            )
        owner.in_flight += 1
        try:
            return await self._engine.sample(prompt, seed=seed, request=f"{self._turn}-{request}")
        finally:
            owner.in_flight -= 1

    async def load(self, folder: str) -> None:
        """Refused: the owner gives out weights."""
        raise RunError(f"{folder} cannot be loaded into a lent engine")

    async def close(self) -> None:
        """Nothing: the engine is its owner's."""


def _equal_weights(a: Path, b: Path) -> bool:
    names = sorted(file.name for file in a.glob("*.safetensors"))
    return names == sorted(file.name for file in b.glob("*.safetensors")) and all(
        filecmp.cmp(a / name, b / name, shallow=False) for name in names
    )


def _refuse_other(first: _Asked, asked: _Asked) -> None:
    spec, own, codec = asked.spec, first.codec, asked.codec
    here = f"{spec.folder} cannot use the engine of {first.spec.folder}"
    then = "evaluate it in a call of its own"
    if asked.opening is not first.opening or replace(spec, folder=first.spec.folder) != first.spec:
        raise InputError(f"{here}: expected the same engine and the same settings after the folder; {then}")
    if spec.folder == first.spec.folder:
        return
    if codec is not own and (codec.template, codec.whole.to_str()) != (own.template, own.whole.to_str()):
        raise InputError(f"{here}: its tokenizer or chat template differs; {then}")
    one, other = _architecture(Path(first.spec.folder)), _architecture(Path(spec.folder))
    differ = sorted(name for name in one.keys() & other.keys() if one[name] != other[name])
    if differ:
        raise InputError(
            f"{here}: its {differ[0]} is {_short(other[differ[0]])}, not {_short(one[differ[0]])}; {then}"
        )


def _architecture(folder: Path) -> dict[str, Any]:
    """What config.json says of the model, and the shapes of its tensors."""
    with reading(f"the model in {folder}", then="expected config.json and *.safetensors"):
        found = json.loads((folder / "config.json").read_text("utf-8"))
        tensors: dict[str, Any] = {}
        for file in sorted(folder.glob("*.safetensors")):
            with file.open("rb") as handle:
                header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
            tensors |= {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    if found.get("tie_word_embeddings"):
        # Its weight is the embedding's, whether it is saved too or not.
        tensors.pop("lm_head.weight", None)
    kept = {name: value for name, value in found.items() if name not in SAID_OTHERWISE}
    return kept | {"set of tensor shapes": tensors}


def _short(value: Any) -> str:
    return f"one of {len(value)} tensors" if isinstance(value, dict) else repr(value)
