"""Which code does the sums: numpy for small batches, compiled kernels for large ones, with the same bits."""

from __future__ import annotations

import sys
from typing import Any

from occupancy.kernels.chunks import SMALL_TURNS


def kernels_for(n_turns: int) -> Any:
    """The module with the kernels: `sums` if large or loaded already, else `small`."""
    if n_turns >= SMALL_TURNS or "occupancy.kernels.sums" in sys.modules:
        from occupancy.kernels import sums as kernels

        return kernels
    from occupancy.kernels import small

    return small
