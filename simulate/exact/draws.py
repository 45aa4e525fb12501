"""Keyed random bits for compiled code: `occupancy.kernels.rng.entry`, as numba sees it.

The cache on disk looks at the calling file alone to see whether it is stale: touch the kernels when
occupancy/kernels/rng.py changes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from occupancy.kernels import rng

mix = njit(inline="always")(rng.mix)
GOLDEN = np.uint64(rng.GOLDEN)


@njit(inline="always")
def entry(key, index):  # type: ignore[no-untyped-def]
    """64 random bits: entry `index` of the stream `key`."""
    return mix(key + GOLDEN + GOLDEN * index)
