"""Kernels see documents alike, and one that cannot run is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import sft
from occupancy.record.errors import InputError
from sft import attention

CPU = torch.device("cpu")
BOUNDS = np.asarray([0, 5, 6, 13])


def qkv() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (1, 4, 13, 16), (1, 2, 13, 16), (1, 2, 13, 16)
    return tuple(torch.randn(s, generator=generator) for s in shape)  # type: ignore[return-value]


def naive(window: int | None) -> torch.Tensor:
    """Every query, one by one, over the keys of its document up to its own place."""
    q, k, v = qkv()
    out = torch.zeros(1, 13, 4, 16)
    for a, b in pairwise(BOUNDS):
        for i in range(a, b):
            first = a if window is None else max(a, i - window + 1)
            for h in range(4):
                keys, values = k[0, h // 2, first : i + 1], v[0, h // 2, first : i + 1]
                out[0, i, h] = torch.softmax(keys @ q[0, h, i] / 4, 0) @ values
    return out


@pytest.mark.parametrize("window", [None, 3])
def test_one_call_a_document_is_attention_inside_documents(window: int | None) -> None:
    docs = attention.documents(BOUNDS, kernel="sdpa", device=CPU)
    assert docs.longest == 7
    out, _ = attention._attend(None, *qkv(), None, sliding_window=window, documents=docs)
    assert torch.allclose(out, naive(window), atol=1e-5)


def test_the_block_mask_of_flex_attention_is_the_same() -> None:
    from torch.nn.attention import flex_attention as flex

    mask = attention._block_mask(torch.from_numpy(BOUNDS).int(), 13)
    allowed = flex.create_mask(mask.mask_mod, 1, 1, 13, 13, device="cpu")[0, 0]
    document = np.searchsorted(BOUNDS[1:], np.arange(13), side="right")
    place = np.arange(13)
    wanted = (document[:, None] == document[None, :]) & (place[:, None] >= place[None, :])
    assert np.array_equal(allowed.numpy(), wanted)


def test_variable_length_kernels_get_tokens_heads_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper of PyTorch's kernel, with a stand-in that takes the kernel's own arguments."""
    from torch.nn.attention import varlen

    def stand_in(  # noqa: PLR0917
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seq_q: torch.Tensor,
        cu_seq_k: torch.Tensor,
        max_q: int,
        max_k: int,
        *,
        window_size: tuple[int, int] = (-1, -1),
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        assert q.shape == (13, 4, 16)
        assert k.shape == v.shape == (13, 2, 16)
        assert cu_seq_q.dtype == torch.int32
        assert (max_q, max_k, window_size, enable_gqa) == (7, 7, (2, 0), True)
        docs = attention.Documents("sdpa", cu_seq_q, max_q, tuple(cu_seq_q.tolist()))
        inputs = (x.transpose(0, 1)[None] for x in (q, k, v))
        return attention._per_document(*inputs, docs, scale=scale, window=window_size[0] + 1)[0]

    monkeypatch.setattr(varlen, "varlen_attn", stand_in)
    attention._parameters.cache_clear()
    docs = attention.Documents("torch", torch.from_numpy(BOUNDS).int(), 7)
    out, _ = attention._attend(None, *qkv(), None, sliding_window=3, documents=docs)
    attention._parameters.cache_clear()
    assert torch.allclose(out, naive(3), atol=1e-5)


def test_a_kernel_that_cannot_run_is_refused() -> None:
    settings = sft.preset("hotpotqa").replace(precision="fp32")
    assert attention.choose(settings, CPU) == "sdpa"
    with pytest.raises(InputError, match=r"with fp32 on cpu: use one of \['sdpa'\]"):
        attention.choose(settings.replace(attention="torch"), CPU)


def test_a_model_that_caps_its_scores_is_refused() -> None:
    docs = attention.documents(BOUNDS, kernel="sdpa", device=CPU)
    with pytest.raises(InputError, match="capped attention scores"):
        attention._attend(None, *qkv(), None, documents=docs, softcap=50.0)


def test_public_names_exist() -> None:
    assert sorted(sft.__all__) == sorted(set(sft.__all__))
    for name in sft.__all__:
        assert getattr(sft, name) is not None
