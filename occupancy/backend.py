"""Which code does the sums: numpy for small batches, compiled kernels for large ones, with the same bits."""

from __future__ import annotations

import sys
from typing import Any

from occupancy.chunks import SMALL_TURNS


def kernels_for(n_turns: int) -> Any:
    """The module with the kernels: `occupancy.kernels` if large or loaded already, else `occupancy.small`."""
    if n_turns >= SMALL_TURNS or "occupancy.kernels" in sys.modules:
        from occupancy import kernels

        return kernels
    from occupancy import small

    return small
