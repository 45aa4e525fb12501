"""Serial numba kernels of the bootstrap: arrays in, arrays of the caller out, GIL released.

A block has BLOCK replicates. Its resampling weights are functions of (key, block, cluster) alone.
"""

from __future__ import annotations

import numpy as np

from occupancy.kernels.compiled import compiled
from occupancy.kernels.draw import GOLDEN, HALF, LOW, mix
from occupancy.record.types import Float64

BLOCK = 64
WIDTH = np.uint64(BLOCK // 2)


@compiled
def poisson_block(sums: Float64, key: np.uint64, block: np.uint64, out: Float64) -> None:
    """Adds sums [Q, D] with independent Poisson(1) weights: out [D, BLOCK].

    One word gives two weights by counting the quantiles that each half reaches. Comparisons against
    constants become vector instructions, which a table of the quantiles does not.
    """
    weights = np.empty(BLOCK, np.uint8)
    for q in range(sums.shape[0]):
        stream = mix(key + GOLDEN + GOLDEN * np.uint64(q))
        for j in range(BLOCK // 2):
            word = mix(stream + GOLDEN + GOLDEN * (block * WIDTH + np.uint64(j)))
            for half in range(2):
                u = int(np.int64((word >> HALF) if half else (word & LOW)))
                weights[half * (BLOCK // 2) + j] = (
                    (u >= 1580030169)
                    + (u >= 3160060337)
                    + (u >= 3950075422)
                    + (u >= 4213413783)
                    + (u >= 4279248374)
                    + (u >= 4292415292)
                    + (u >= 4294609778)
                    + (u >= 4294923276)
                    + (u >= 4294962463)
                    + (u >= 4294966817)
                    + (u >= 4294967253)
                    + (u >= 4294967292)
                )
        for d in range(sums.shape[1]):
            for r in range(BLOCK):
                out[d, r] += np.float64(weights[r]) * sums[q, d]


@compiled
def gather_block(sums: Float64, key: np.uint64, block: np.uint64, out: Float64) -> None:
    """Adds Q rows of sums [Q, D], drawn with replacement, for each replicate: out [D, BLOCK]."""
    Q = np.uint64(sums.shape[0])
    for r in range(BLOCK):
        stream = mix(key + GOLDEN + GOLDEN * (block * np.uint64(BLOCK) + np.uint64(r)))
        for i in range(sums.shape[0]):
            word = mix(stream + GOLDEN + GOLDEN * np.uint64(i))
            q = ((word >> HALF) * Q) >> HALF
            for d in range(sums.shape[1]):
                out[d, r] += sums[np.int64(q), d]
