"""transformers' continuous batching as a student: real sampling, on a model of a few thousand weights."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra 'train' is not installed")
transformers = pytest.importorskip("transformers", reason="the extra 'agents' is not installed")

from families import codec, tokenizer_of
from tiny_model import save_tiny_model

from agentloop.policies.by_name import open_model
from agentloop.policies.prompt_ids import PromptIds
from agentloop.types import Answer, Ask, ContextOverflow, Message
from occupancy.record.errors import InputError, RunError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model"))


def asks(n: int) -> list[Ask]:
    env: Any = None
    return [Ask((Message("user", "word " * (1 + i), "task"),), 1, i, env, f"e{i}") for i in range(n)]


def answers(folder: Path, wanted: list[Ask], *, options: str = "") -> list[Answer]:
    async def main() -> list[Answer]:
        policy = open_model(f"transformers:{folder},max_tokens=12{options}")
        try:
            return await asyncio.gather(*(policy(ask) for ask in wanted))
        finally:
            await policy.close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine's own
        return asyncio.run(main())


def test_greedy_turns_in_a_batch_are_those_of_a_model_alone(folder: Path) -> None:
    wanted = asks(6)
    batch = answers(folder, wanted, options=",temperature=0")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for ask, answer in zip(wanted, batch, strict=True):
        prompt = torch.tensor([PromptIds(codec("chatml")).of(ask)])
        alone = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False
        )
        assert answer.token_ids == tuple(alone[0, prompt.shape[1] :].tolist())
        assert answer.usage.output == len(answer.token_ids or ())
        assert answer.usage.prompt == prompt.shape[1]


def test_sampled_turns_carry_the_logprob_of_their_ids(folder: Path) -> None:
    wanted = asks(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for ask, answer in zip(wanted, answers(folder, wanted), strict=True):
        prompt = PromptIds(codec("chatml")).of(ask)
        ids = torch.tensor([[*prompt, *(answer.token_ids or ())]])
        with torch.no_grad():
            scores = model(ids).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
        own = scores.gather(1, ids[0, len(prompt) :, None]).sum().item()
        assert answer.logprob == pytest.approx(own, abs=1e-3)


def test_log_probabilities_can_be_left_out(folder: Path) -> None:
    wanted = asks(2)
    given = answers(folder, wanted, options=",temperature=0,logprobs=0")
    assert [a.logprob for a in given] == [None, None]
    assert [a.token_ids for a in given] == [
        a.token_ids for a in answers(folder, wanted, options=",temperature=0")
    ]
    policy = open_model(f"transformers:{folder},logprobs=0")
    assert policy.traits.gives == {"text", "usage", "token_ids"}


def test_the_window_is_the_models_own(folder: Path) -> None:
    with pytest.raises(ContextOverflow, match="do not fit 256"):
        answers(folder, [asks(200)[-1]])


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    tokenizer_of("chatml").save_pretrained(tmp_path)
    with pytest.raises(InputError, match="holds no model"):
        answers(tmp_path, asks(1))


def test_an_engine_that_dies_ends_the_run_and_is_no_data(folder: Path) -> None:
    with pytest.raises(RunError, match="engine has ended"):
        answers(folder, asks(2), options=",memory=0.0001")
