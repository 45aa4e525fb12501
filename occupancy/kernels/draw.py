"""Serial numba kernels that draw switch times: arrays in, arrays of the caller out, input trusted.

They release the GIL. The compiled code is cached on disk; numba looks at this file alone to see whether it
is stale, so touch it when rng.py changes.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from occupancy.kernels import rng
from occupancy.kernels.compiled import compiled
from occupancy.record.types import Float32, Float64, Int32, Int64

Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


mix = njit(inline="always")(rng.mix)
uniform = njit(inline="always")(rng.uniform)
GOLDEN = np.uint64(rng.GOLDEN)
LOW, HALF = np.uint64(0xFFFF_FFFF), np.uint64(32)
M0, M1 = np.uint64(0xD251_1F53), np.uint64(0xCD9E_8D57)
W0, W1 = np.uint64(0x9E37_79B9), np.uint64(0xBB67_AE85)


@njit(inline="always")
def philox(seed, draw, trajectory):  # type: ignore[no-untyped-def]
    """rng.philox on compiled words, whose constants must be typed."""
    c0, c1, c2, c3 = trajectory & LOW, trajectory >> HALF, draw & LOW, draw >> HALF
    k0, k1 = seed & LOW, seed >> HALF
    for _ in range(10):
        p0, p1 = c0 * M0, c2 * M1
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & LOW, (p0 >> HALF) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0 | (c1 << HALF)


@njit(inline="always")
def bits_of(stream, trajectory):  # type: ignore[no-untyped-def]
    """64 random bits of a trajectory; stream is (SplitMix64 key, seed, draw, whether Philox draws)."""
    if stream[3]:
        return philox(stream[1], stream[2], trajectory)
    return mix(stream[0] + GOLDEN + GOLDEN * trajectory)


@compiled
def fill_bits(stream: tuple[np.uint64, ...], first: np.uint64, out: Words) -> None:
    """Bits of the trajectories first, first + 1, ..: out [B]."""
    for b in range(out.size):
        out[b] = bits_of(stream, first + np.uint64(b))


@compiled
def draw_uniform(
    offsets: Int64,
    T_max: int,
    stream: tuple[np.uint64, ...],
    first: np.uint64,
    t_prime: Int32,
    probability: Float64,
    accepted: Flags,
) -> None:
    """t' ~ Unif{1..T}, or Unif{1..T_max} accepted where t' <= T if T_max is not 0."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        top = T_max if T_max else T
        at = np.int64(uniform(bits_of(stream, first + np.uint64(b))) * top)
        t_prime[b] = 1 + at if T else 0
        probability[b] = 1.0 / top if T else 0.0
        accepted[b] = at < T


@compiled
def draw_fixed(
    offsets: Int64,
    nu: Float64,
    cdf: Float64,
    stream: tuple[np.uint64, ...],
    first: np.uint64,
    t_prime: Int32,
    probability: Float64,
    accepted: Flags,
) -> None:
    """t' ~ nu by its running sum `cdf`, accepted where t' <= T."""
    for b in range(offsets.size - 1):
        T = offsets[b + 1] - offsets[b]
        u = uniform(bits_of(stream, first + np.uint64(b)))
        at = 0
        for t in range(cdf.size):  # counting is faster than a search: no branch depends on u
            at += cdf[t] <= u
        t_prime[b] = at + 1 if T else 0
        probability[b] = nu[at] if T else 0.0
        accepted[b] = at < T


@compiled
def draw_weighted(
    offsets: Int64,
    weights: Float32,
    stream: tuple[np.uint64, ...],
    first: np.uint64,
    t_prime: Int32,
    probability: Float64,
    accepted: Flags,
) -> int:
    """t' with probability w_t / sum w; returns the first trajectory whose weights sum to zero, or -1."""
    for b in range(offsets.size - 1):
        begin, end = offsets[b], offsets[b + 1]
        total = 0.0
        for i in range(begin, end):
            total += np.float64(weights[i])
        if total == 0.0 and end > begin:
            return b
        target = uniform(bits_of(stream, first + np.uint64(b))) * total
        # Counting the running sums at or below the target needs no branch that the processor must guess.
        below, running = 0, 0.0
        for i in range(begin, end):
            running += np.float64(weights[i])
            below += running <= target
        t_prime[b] = below + 1 if end > begin else 0
        probability[b] = np.float64(weights[begin + below]) / total if end > begin else 0.0
        accepted[b] = end > begin
    return -1
