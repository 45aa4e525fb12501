"""1/T as a whole number of 2**-63, so that sums of it are exact and do not depend on their order.

1/T = (high + low * 2**-32) * 2**-31, cut off at 2**-63: a relative error of T * 2**-63. A state can be
crossed by 2**32 trajectories before `high` overflows; `low` is carried into `high` after each chunk.
"""

from __future__ import annotations

import numpy as np

from occupancy.record.types import Float64, Int64

ONE = 1 << 31
LOW_BITS = 32


def reciprocals(T: Int64) -> tuple[Int64, Int64]:
    """(high, low) of each 1/T; (0, 0) where T = 0."""
    divisor = np.maximum(T, 1)
    high = np.where(T > 0, ONE // divisor, 0)
    low = np.where(T > 0, ((ONE % divisor) << LOW_BITS) // divisor, 0)
    return high, low


def carry(high: Int64, low: Int64) -> tuple[Int64, Int64]:
    """The same numbers with low below 2**32."""
    return high + (low >> LOW_BITS), low & ((1 << LOW_BITS) - 1)


def to_float(high: Int64, low: Int64) -> Float64:
    """The numbers in float64."""
    return (high + low * 2.0**-LOW_BITS) / ONE
