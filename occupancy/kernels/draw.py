"""Serial numba kernels that draw switch times: arrays in, arrays of the caller out, input trusted.

They release the GIL. The compiled code is cached on disk; numba looks at this file alone to see whether it
is stale, so touch it when rng.py changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from occupancy.kernels import rng
from occupancy.kernels.compiled import compiled
from occupancy.record.types import Float64, Floats, Int32, Int64

Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


mix = njit(inline="always")(rng.mix)
uniform = njit(inline="always")(rng.uniform)
GOLDEN = np.uint64(rng.GOLDEN)
LOW, HALF = np.uint64(0xFFFF_FFFF), np.uint64(32)


class Stream(NamedTuple):
    """Random words of a batch's trajectories."""

    key: np.uint64
    """From `rng.stream_key`."""
    first: np.uint64
    """Number of the batch's first trajectory."""


class Drawn(NamedTuple):
    """Where the draws go; arrays [B] as in `occupancy.statistics.switch.Switches`."""

    t_prime: Int32
    probability: Float64
    accepted: Flags


@njit(inline="always")
def uniform_of(stream, b):  # type: ignore[no-untyped-def]
    """The number in [0, 1) of trajectory b of the batch."""
    return uniform(mix(stream.key + GOLDEN + GOLDEN * (stream.first + np.uint64(b))))


@compiled
def fill_bits(stream: Stream, out: Words) -> None:
    """64 random bits of each trajectory: out [B]."""
    for b in range(out.size):
        out[b] = mix(stream.key + GOLDEN + GOLDEN * (stream.first + np.uint64(b)))


@compiled
def draw_uniform(offsets: Int64, T_max: int, stream: Stream, out: Drawn) -> None:
    """t' ~ Unif{1..T}, or Unif{1..T_max} accepted where t' <= T if T_max is not 0."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        top = T_max if T_max else T
        at = np.int64(uniform_of(stream, b) * top)
        out.t_prime[b] = 1 + at if T else 0
        out.probability[b] = 1.0 / top if T else 0.0
        out.accepted[b] = at < T


@compiled
def draw_fixed(offsets: Int64, nu: Float64, cdf: Float64, stream: Stream, out: Drawn) -> None:
    """t' ~ nu by its running sum `cdf`, accepted where t' <= T."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        u = uniform_of(stream, b)
        at = 0
        for t in range(cdf.size):  # counting is faster than a search: no branch depends on u
            at += cdf[t] <= u
        out.t_prime[b] = at + 1 if T else 0
        out.probability[b] = nu[at] if T else 0.0
        out.accepted[b] = at < T


@compiled
def draw_weighted(offsets: Int64, weights: Floats, stream: Stream, out: Drawn) -> int:
    """t' with probability w_t / sum w; returns the first trajectory whose weights sum to zero, or -1."""
    for b in range(offsets.size - 1):
        begin, end = offsets[b], offsets[b + 1]
        total = 0.0
        for i in range(begin, end):
            total += np.float64(weights[i])
        if total == 0.0 and end > begin:
            return b
        target = uniform_of(stream, b) * total
        # Counting the running sums at or below the target needs no branch that the processor must guess.
        below, running = 0, 0.0
        for i in range(begin, end):
            running += np.float64(weights[i])
            below += running <= target
        out.t_prime[b] = below + 1 if end > begin else 0
        out.probability[b] = np.float64(weights[begin + below]) / total if end > begin else 0.0
        out.accepted[b] = end > begin
    return -1
