"""One engine for many checkpoints: it gives what a fresh one would, and refuses what it cannot serve."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the extra 'train' is not installed")
pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from families import codec
from tiny_model import save_tiny_model

from agentloop.policies.by_name import open_model
from agentloop.policies.one_engine import OneEngine
from agentloop.policies.token_policy import Engine, Sampled, TokenPolicy, TokenSpec
from agentloop.render import Codec
from agentloop.types import Ask, Message
from occupancy.record.errors import InputError, RunError

GREEDY = "max_tokens=8,temperature=0"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("models")
    return [str(save_tiny_model(place / f"seed{seed}", seed=seed)) for seed in range(2)]


def ask(n: int = 3) -> Ask:
    env: Any = None
    return Ask((Message("user", "word " * n, "task"),), 1, 0, env, f"e{n}")


class Fake:
    """An engine whose turns are the last letter of the folder that it holds."""

    window, stubborn = 1000, False

    def __init__(self) -> None:
        self.folder, self.loads, self.closed = "", 0, False
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, spec: TokenSpec, _: Codec) -> Engine:
        self.folder = spec.folder
        return self

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        await self.gate.wait()
        return Sampled((ord(self.folder[-1]),), -1.0)

    async def load(self, folder: str) -> None:
        self.loads += 1
        if not self.stubborn:
            self.folder = folder

    async def close(self) -> None:
        self.closed = True


def policy(engine: OneEngine, fake: Fake, folder: str, **settings: Any) -> TokenPolicy:
    spec, opening = TokenSpec(folder, **settings), fake.open
    return TokenPolicy(spec, codec("chatml"), engine.serve(spec, codec("chatml"), opening))


@pytest.fixture
def fake() -> Fake:
    found = Fake()
    # One opening: a bound method is a new object at every look.
    found.open = found.open  # type: ignore[method-assign]
    return found


def test_turns_are_those_of_a_fresh_engine(folders: list[str]) -> None:
    async def fresh(folder: str) -> Any:
        alone = open_model(f"transformers:{folder},{GREEDY}")
        try:
            return [(await alone(ask(n))).token_ids for n in (2, 5)]
        finally:
            await alone.close()

    async def shared() -> list[Any]:
        engine = OneEngine()
        try:
            found = []
            for folder in (*folders, folders[0]):
                own = open_model(f"transformers:{folder},{GREEDY}", engine=engine)
                found.append([(await own(ask(n))).token_ids for n in (2, 5)])
                await own.close()
            return found
        finally:
            await engine.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine's own
        a, b = (asyncio.run(fresh(folder)) for folder in folders)
        assert a != b
        assert asyncio.run(shared()) == [a, b, a]


def test_another_model_is_refused_before_anything_is_played(folders: list[str], tmp_path: Path) -> None:
    engine = OneEngine()

    def also(folder: object, settings: str = GREEDY, kind: str = "transformers") -> TokenPolicy:
        return open_model(f"{kind}:{folder},{settings}", engine=engine)

    also(folders[0])
    also(folders[1])
    with pytest.raises(InputError, match="the same settings after the folder"):
        also(folders[1], "max_tokens=9,temperature=0")
    with pytest.raises(InputError, match="the same engine"):
        also(folders[1], kind="vllm")
    wider = save_tiny_model(tmp_path / "wider", intermediate_size=96)
    with pytest.raises(InputError, match="its intermediate_size is 96, not 64"):
        also(wider)
    with pytest.raises(InputError, match="its tokenizer or chat template differs"):
        also(save_tiny_model(tmp_path / "other", family="thinking"))
    (wider / "config.json").unlink()
    with pytest.raises(InputError, match="there is no such file"):
        also(wider)


def test_an_engine_that_keeps_its_weights_is_found_out(folders: list[str], fake: Fake) -> None:
    async def main() -> None:
        engine = OneEngine()
        await policy(engine, fake, folders[0])(ask())
        fake.stubborn = True
        with pytest.raises(RunError, match="still answers with the weights"):
            await policy(engine, fake, folders[1])(ask())
        assert fake.closed, "which weights it holds is not known"

    asyncio.run(main())


def test_nobody_asks_while_weights_change_or_after(folders: list[str], fake: Fake) -> None:
    async def main() -> None:
        engine = OneEngine()
        first, second = (policy(engine, fake, folder) for folder in folders)
        await first(ask())
        fake.gate.clear()
        waiting = asyncio.ensure_future(first(ask()))
        await asyncio.sleep(0)
        with pytest.raises(RunError, match=r"1 requests to .*seed0 are in flight"):
            await policy(engine, fake, folders[1])(ask())
        fake.gate.set()
        assert (await waiting).token_ids == (ord("0"),)
        assert (await second(ask())).token_ids == (ord("1"),)
        with pytest.raises(RunError, match="has taken the weights of another policy"):
            await first(ask())
        assert fake.loads == 1

    asyncio.run(main())
