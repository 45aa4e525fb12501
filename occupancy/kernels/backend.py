"""Choice of kernels: numpy for small batches, compiled ones for large batches, with the same bits.

Importing numba and loading the cached kernels takes 0.7 CPU s, a small batch in numpy 0.02 s: `fewsteps
occupancy` on a run folder needs no compiler.
"""

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
