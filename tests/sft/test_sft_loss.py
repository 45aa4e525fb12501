"""The loss of a pack is the sum of its rows' losses, in value and in gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import VOCABULARY, random_rows, tiny_config

from sft import loss as loss_module
from sft.loss import linear_cross_entropy
from sft.model import DevicePack, load, prepare
from sft.packing import TrainingRows, make_pack
from sft.settings import Settings
from sft.world import World

CPU = World(0, 1, torch.device("cpu"))


def settings(**changes: Any) -> Settings:
    return Settings(lr=1e-2, batch=4, row_tokens=64, epochs=1, precision="fp32").replace(**changes)


def objective(config: Any = None, **changes: Any) -> Any:
    chosen = settings(**changes)
    return prepare(load(config or tiny_config(), chosen), chosen, CPU)


def nll_of(model: Any, rows: TrainingRows, index: list[int]) -> torch.Tensor:
    pack = DevicePack(make_pack(rows, index), kernel="sdpa", device=CPU.device)
    scale = torch.tensor(1.0)
    total, nll = model(pack, scale)
    total.backward()
    assert torch.allclose(total, nll.sum())
    return nll  # type: ignore[no-any-return]


def reference(model: Any, ids: np.ndarray, targets: np.ndarray) -> torch.Tensor:
    """Plain transformers: one row, its own attention, all logits, the standard shift."""
    hf = model.model
    hf.set_attn_implementation("eager")
    logits = hf(input_ids=torch.tensor(ids[None].astype(np.int64)), use_cache=False).logits[0]
    hf.set_attn_implementation("fewsteps")
    labels = torch.tensor(ids[1:].astype(np.int64))
    nll = torch.nn.functional.cross_entropy(logits[:-1].float(), labels, reduction="none")
    return nll[torch.tensor(targets[1:])]


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3"])
def test_packed_loss_and_gradient_equal_those_of_single_rows(family: str) -> None:
    """U17: within 1e-4 in value and 1e-3 in gradient, in fp32, also with sliding windows."""
    rows = random_rows(5, seed=3)
    model = objective(config_of(family))
    singles = torch.cat([reference(model, rows.take([i]).ids, rows.take([i]).targets) for i in (4, 1, 3)])
    singles.sum().backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    packed = nll_of(model, rows, [4, 1, 3])
    assert packed.shape == singles.shape
    assert (packed.sum() - singles.sum()).abs() <= 1e-4 * singles.sum()
    assert torch.allclose(packed, singles, atol=1e-4)
    for name, p in model.named_parameters():
        assert (p.grad - wanted[name]).norm() <= 1e-3 * wanted[name].norm() + 1e-7, name


def config_of(family: str) -> Any:
    if family == "llama":
        return tiny_config()
    small = {k: v for k, v in tiny_config().to_dict().items() if k in SHAPE}
    if family == "qwen2":
        from transformers import Qwen2Config

        return Qwen2Config(**small)
    from transformers import Gemma3TextConfig

    return Gemma3TextConfig(
        **small, head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
    )


SHAPE = {
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "tie_word_embeddings",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
}


def test_another_document_changes_nothing() -> None:
    rows = random_rows(2, seed=5)
    model = objective()
    before = nll_of(model, rows, [0, 1])[int(rows.target_counts[0]) :]
    own = slice(0, int(rows.offsets[1]))
    rows.ids[own] = rows.ids[own][::-1].copy()
    after = nll_of(model, rows, [0, 1])[int(rows.target_counts[0]) :]
    assert torch.equal(before, after)


def test_exactly_the_targets_are_predicted() -> None:
    """U4: a prompt of three ids and an answer of two; the head's gradient says which ids were targets."""
    rows = TrainingRows(
        np.asarray([10, 11, 12, 50, 51], np.int32),
        np.asarray([False, False, False, True, True]),
        np.asarray([0, 0, 0, 1, 1], np.int16),
        np.zeros(5, np.int32),
        np.asarray([0, 5]),
        ("bc",),
        ("t",),
    )
    model = objective(tiny_config(tie_word_embeddings=False))
    nll_of(model, rows, [0])
    gradient = model.model.get_output_embeddings().weight.grad
    # A label's row is pulled towards its hidden state: softmax - 1 is negative there only.
    pulled = {v for v in range(VOCABULARY) if gradient[v].norm() > 10 * gradient.norm(dim=1).median()}
    assert pulled == {50, 51}


def test_the_embedding_of_the_closing_token_learns_although_it_is_the_padding_token() -> None:
    rows = random_rows(1, seed=1)
    rows.ids[1] = 1
    model = objective(tiny_config(tie_word_embeddings=False))
    nll_of(model, rows, [0])
    assert model.model.get_input_embeddings().weight.grad[1].norm() > 0


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 30])
def test_chunked_head_equals_cross_entropy(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_BYTES", chunk_bytes)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(700, 8, generator=generator, requires_grad=True)
    weight = torch.randn(30, 8, generator=generator, requires_grad=True)
    labels = torch.randint(0, 30, (700,), generator=generator)
    wanted = torch.nn.functional.cross_entropy(hidden @ weight.T, labels, reduction="sum") * 0.5
    expected = torch.autograd.grad(wanted, (hidden, weight))
    got, nll = linear_cross_entropy(hidden, weight, labels, torch.tensor(0.5))
    found = torch.autograd.grad(got, (hidden, weight))
    assert torch.allclose(got, wanted, rtol=1e-5)
    assert torch.allclose(nll.sum() * 0.5, wanted, rtol=1e-5)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)


def test_checkpointing_changes_no_gradient() -> None:
    rows = random_rows(3, seed=2)
    a, b = objective(), objective(checkpointing=True)
    nll_of(a, rows, [0, 1, 2])
    nll_of(b, rows, [0, 1, 2])
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.allclose(p.grad, q.grad, atol=1e-6)
