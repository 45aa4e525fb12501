"""Attention inside the documents of a pack, through the fastest kernel that the machine has.

    flash   the flash-attn package: version 3 (flash_attn_interface), 4 (flash_attn.cute) or 2
    torch   PyTorch's own variable-length kernel (CUDA, half precision)
    flex    flex attention with a block mask (CUDA)
    sdpa    one call a document, for any device and precision

Models of transformers find it under the name `fewsteps`.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from occupancy.record.errors import InputError
from sft.settings import Settings

NAME = "fewsteps"


@dataclass(frozen=True, eq=False)
class Documents:
    """Where the documents of a pack are, as the kernel wants it."""

    kernel: str
    """flash, torch, flex or sdpa."""
    bounds: Tensor
    """[D + 1] int32, on the device."""
    longest: int
    """No document has more ids."""
    places: tuple[int, ...] = ()
    """The bounds on the host, for sdpa."""
    mask: Any = None
    """The block mask, for flex."""


def documents(bounds: Any, *, kernel: str, device: torch.device) -> Documents:
    """Documents of a pack; bounds [D + 1]."""
    places = tuple(int(b) for b in bounds)
    longest = max(b - a for a, b in pairwise(places))
    on_device = torch.tensor(places, dtype=torch.int32)
    if device.type == "cuda":
        on_device = on_device.pin_memory().to(device, non_blocking=True)
    mask = _block_mask(on_device, places[-1]) if kernel == "flex" else None
    return Documents(kernel, on_device, longest, places if kernel == "sdpa" else (), mask)


def choose(settings: Settings, device: torch.device) -> str:
    """The kernel to use; one that cannot run here is refused, not replaced."""
    wanted, precision = settings.attention, settings.precision
    fast = device.type == "cuda" and precision != "fp32"
    usable: dict[str, Callable[[], bool]] = {
        "flash": lambda: fast and _flash() is not None,
        "torch": lambda: fast and importlib.util.find_spec("torch.nn.attention.varlen") is not None,
        "flex": lambda: device.type == "cuda",
        "sdpa": lambda: True,
    }
    if wanted == "auto":
        return next(name for name, can in usable.items() if can())
    if not usable[wanted]():
        can = [name for name, ok in usable.items() if ok()]
        raise InputError(f"attention={wanted!r} does not run with {precision} on {device}: use one of {can}")
    return wanted


def register() -> None:
    """Make the name known to transformers; no mask is built for it."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, lambda *_, **__: None)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    documents: Documents | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """query [1, heads, P, d], key and value [1, kv heads, P, d] -> [1, P, heads, d]."""
    if documents is None:
        raise InputError("attention 'fewsteps' needs the documents of a pack: pass documents=")
    if unused.get("softcap") is not None:
        raise InputError("a model with capped attention scores is not supported: set its softcap to None")
    # A window that reaches over the longest document hides nothing.
    window = sliding_window if sliding_window and sliding_window < documents.longest else None
    run = _KERNELS[documents.kernel]
    return run(query, key, value, documents, scale=scaling, window=window), None


def _per_document(
    q: Tensor, k: Tensor, v: Tensor, docs: Documents, *, scale: float | None, window: int | None
) -> Tensor:
    parts = []
    for a, b in pairwise(docs.places):
        mask = None
        if window is not None and b - a > window:
            place = torch.arange(b - a, device=q.device)
            back = place[:, None] - place[None, :]
            mask = (back >= 0) & (back < window)
        parts.append(
            scaled_dot_product_attention(
                q[:, :, a:b],
                k[:, :, a:b],
                v[:, :, a:b],
                attn_mask=mask,
                is_causal=mask is None,
                scale=scale,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        )
    return torch.cat(parts, 2).transpose(1, 2)


def _torch_varlen(
    q: Tensor, k: Tensor, v: Tensor, docs: Documents, *, scale: float | None, window: int | None
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    more: dict[str, Any] = {"window_size": (-1 if window is None else window - 1, 0), "scale": scale}
    takes = _parameters()
    if "window_size" not in takes:
        if window is not None:
            raise InputError("this PyTorch has no sliding window: use attention='flex' or 'sdpa'")
        more = {"is_causal": True} | ({"scale": scale} if "scale" in takes else {})
    if "enable_gqa" in takes:
        more["enable_gqa"] = q.shape[1] != k.shape[1]
    out = varlen_attn(q, k, v, docs.bounds, docs.bounds, docs.longest, docs.longest, **more)
    return out[None]


@functools.cache
def _parameters() -> frozenset[str]:
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)


@functools.cache
def _flash() -> Callable[..., Any] | None:
    """flash_attn_varlen_func of the newest version there is; None where there is none."""
    try:
        if importlib.util.find_spec("flash_attn_interface"):
            from flash_attn_interface import flash_attn_varlen_func as version_3

            return version_3
        if importlib.util.find_spec("flash_attn") is None:
            return None
        if importlib.util.find_spec("flash_attn.cute"):
            from flash_attn.cute import flash_attn_varlen_func as version_4

            # Its kernels are compiled by another compiler, which torch.compile must not look into.
            return torch.compiler.disable(version_4)
        from flash_attn import flash_attn_varlen_func as version_2

        return version_2
    except ImportError as error:
        raise InputError(
            f"flash-attn is installed, but cannot be imported ({error}): repair or remove it, or use "
            f"attention='torch'"
        ) from error


def _flash_varlen(
    q: Tensor, k: Tensor, v: Tensor, docs: Documents, *, scale: float | None, window: int | None
) -> Tensor:
    function = _flash()
    assert function is not None
    q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    sizes = (-1 if window is None else window - 1, 0 if window is not None else -1)
    out = function(
        q,
        k,
        v,
        cu_seqlens_q=docs.bounds,
        cu_seqlens_k=docs.bounds,
        max_seqlen_q=docs.longest,
        max_seqlen_k=docs.longest,
        softmax_scale=scale,
        causal=True,
        **({"window_size": sizes} if window is not None else {}),
    )
    return (out[0] if isinstance(out, tuple) else out)[None]


def _block_mask(bounds: Tensor, total: int) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    place = torch.arange(total, device=bounds.device, dtype=torch.int32)
    document = torch.bucketize(place, bounds[1:].contiguous(), right=True)

    def same(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (document[i] == document[j]) & (i >= j)

    return create_block_mask(same, None, None, total, total, device=str(bounds.device))


@functools.cache
def _compiled_flex() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention)


def _flex(
    q: Tensor, k: Tensor, v: Tensor, docs: Documents, *, scale: float | None, window: int | None
) -> Tensor:
    if window is not None:
        raise InputError("flex attention has no sliding window here: use attention='torch' or 'sdpa'")
    gqa = q.shape[1] != k.shape[1]
    out = _compiled_flex()(q, k, v, block_mask=docs.mask, scale=scale, enable_gqa=gqa)
    return out.transpose(1, 2)


_KERNELS: dict[str, Callable[..., Tensor]] = {
    "flash": _flash_varlen,
    "torch": _torch_varlen,
    "flex": _flex,
    "sdpa": _per_document,
}
