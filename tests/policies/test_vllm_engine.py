"""vLLM in process, on a model of a few thousand weights; needs vllm, which starts in a minute or so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="vllm is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

from families import codec
from tiny_model import save_tiny_model

from agentloop.policies.by_name import open_model
from agentloop.policies.one_engine import OneEngine
from agentloop.policies.prompt_ids import PromptIds
from agentloop.types import Answer, Ask, Message


def asks(n: int, *, seed: int = 0) -> list[Ask]:
    env: Any = None
    return [Ask((Message("user", "word " * (1 + i), "task"),), 1, seed + i, env, f"e{i}") for i in range(n)]


def test_vllm_gives_ids_logprobs_and_seeded_turns(tmp_path: Path) -> None:
    import torch
    import transformers

    folder = save_tiny_model(tmp_path / "model")

    async def main() -> tuple[list[Answer], list[Answer], list[Answer]]:
        policy = open_model(f"vllm:{folder},max_tokens=8,window=128,at_once=16,dtype=float32,eager=1")
        try:
            first = await asyncio.gather(*(policy(ask) for ask in asks(4)))
            again = await asyncio.gather(*(policy(ask) for ask in reversed(asks(4))))
            other = await asyncio.gather(*(policy(ask) for ask in asks(4, seed=100)))
            return first, list(reversed(again)), other
        finally:
            await policy.close()

    first, again, other = asyncio.run(main())
    assert [a.token_ids for a in first] == [a.token_ids for a in again], "equal seeds give equal turns"
    assert [a.token_ids for a in first] != [a.token_ids for a in other]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for ask, answer in zip(asks(4), first, strict=True):
        prompt = PromptIds(codec("chatml")).of(ask)
        assert answer.usage.prompt == len(prompt)
        ids = torch.tensor([[*prompt, *(answer.token_ids or ())]])
        with torch.no_grad():
            scores = model(ids).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
        own = scores.gather(1, ids[0, len(prompt) :, None]).sum().item()
        assert answer.logprob == pytest.approx(own, abs=1e-2)


@pytest.mark.parametrize("tied", [False, True], ids=["two matrices", "tied embeddings"])
def test_an_engine_that_takes_other_weights_gives_the_turns_of_a_fresh_one(
    tmp_path: Path, tied: bool
) -> None:
    folders = [
        save_tiny_model(tmp_path / f"{seed}", seed=seed, tie_word_embeddings=tied) for seed in range(3)
    ]
    settings = "max_tokens=8,temperature=0,window=128,at_once=16,dtype=float32,eager=1"

    async def turns(policy: Any) -> list[Any]:
        answers = await asyncio.gather(*(policy(ask) for ask in asks(6)))
        return [(answer.token_ids, round(answer.logprob, 3)) for answer in answers]

    async def fresh(folder: Path) -> list[Any]:
        policy = open_model(f"vllm:{folder},{settings}")
        try:
            return await turns(policy)
        finally:
            await policy.close()

    async def shared() -> list[list[Any]]:
        engine = OneEngine()
        try:
            order = (0, 1, 2, 0)
            return [await turns(open_model(f"vllm:{folders[i]},{settings}", engine=engine)) for i in order]
        finally:
            await engine.close()

    first, second, third, again = asyncio.run(shared())
    assert first == again
    assert second != first != third
    assert second == asyncio.run(fresh(folders[1])), "as a fresh engine"
    assert third == asyncio.run(fresh(folders[2]))
