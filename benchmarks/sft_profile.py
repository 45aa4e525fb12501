"""Where the GPU's time goes in a training step: kernels by kind, and how long none runs."""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity

KINDS = (
    ("nccl", ("nccl",)),
    ("attention", ("flash", "fmha", "attention")),
    ("products", ("gemm", "nvjet", "cutlass", "xmma", "sm90")),
    ("optimizer", ("adam", "multi_tensor")),
    ("copies", ("memcpy", "memset", "fill", "split_with_sizes", "chunk_cat")),
)


class Profile:
    """Kernels between start and stop; the GPU is waited for at both ends."""

    def start(self) -> None:
        torch.cuda.synchronize()
        self._profiler = torch.profiler.profile(activities=[ProfilerActivity.CUDA])
        self._profiler.start()

    def stop(self, *, top: int = 16) -> dict[str, Any]:
        """Milliseconds of each kind, of the longest kernels, of the span and of its part without a kernel."""
        torch.cuda.synchronize()
        self._profiler.stop()
        found = [
            (e.name, e.time_range.start, e.time_range.end)
            for e in self._profiler.events()
            if e.device_type == torch.autograd.DeviceType.CUDA
        ]
        kinds: dict[str, float] = {}
        kernels: dict[str, float] = {}
        for name, start, end in found:
            kind = kind_of(name)
            kinds[kind] = kinds.get(kind, 0.0) + (end - start) / 1e3
            kernels[name[:70]] = kernels.get(name[:70], 0.0) + (end - start) / 1e3
        busy, until = 0.0, 0.0
        for _, start, end in sorted(found, key=lambda f: f[1]):
            busy += max(end - max(start, until), 0.0)
            until = max(until, end)
        span = (until - min(f[1] for f in found)) / 1e3
        longest = sorted(kernels.items(), key=lambda k: -k[1])[:top]
        return {
            "span_ms": round(span, 1),
            "idle_ms": round(span - busy / 1e3, 1),
            "kernels": len(found),
            "kinds_ms": {k: round(v, 1) for k, v in sorted(kinds.items(), key=lambda k: -k[1])},
            "longest_ms": {k: round(v, 1) for k, v in longest},
        }


def kind_of(kernel: str) -> str:
    """Kind of a kernel, by its name."""
    low = kernel.lower()
    return next((kind for kind, words in KINDS if any(w in low for w in words)), "other")
