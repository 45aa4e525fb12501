"""Random numbers by counter: the number is a function of (seed, trajectory, draw) and of nothing else.

No state is carried, so a draw does not depend on thread count, on chunking or on the draws before it.
The three coordinates are nested SplitMix64 streams: the seed's first output seeds a stream over draws,
whose entry seeds a stream over trajectories (Steele, Lea and Flood, OOPSLA 2014; mixing constants of
Stafford's variant 13).

Philox4x32-10 (Salmon et al., SC 2011) is the generator to check the first against: its key is the seed and
its counter is (trajectory, draw). benchmarks/README.md has the test battery and the speed of both.

Every function here is plain arithmetic on unsigned 64-bit values and runs on Python integers and on numpy
uint64 arrays; numba compiles `mix` and `uniform` as they stand, see `occupancy.kernels.draw`.
"""

from __future__ import annotations

from typing import Any

from occupancy.record.errors import InputError

MASK = 0xFFFF_FFFF_FFFF_FFFF
GENERATORS = ("splitmix64", "philox4x32")
GOLDEN = 0x9E37_79B9_7F4A_7C15


MULTIPLIERS = (0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB)


def mix(z: Any, first: Any = MULTIPLIERS[0], second: Any = MULTIPLIERS[1], mask: Any = MASK) -> Any:
    """Bijection of 64 bits in which each input bit flips each output bit half of the time.

    JAX takes no Python integer above 2**63: pass the three constants as np.uint64 there.
    """
    z = ((z ^ (z >> 30)) * first) & mask
    z = ((z ^ (z >> 27)) * second) & mask
    return z ^ (z >> 31)


def entry(key: Any, index: Any) -> Any:
    """Entry number `index` >= 0 of the SplitMix64 stream seeded by `key`."""
    return mix((key + GOLDEN + GOLDEN * index) & MASK)


def uniform(bits: Any) -> Any:
    """The upper 53 of 64 random bits as a double in [0, 1)."""
    return (bits >> 11) * 2.0**-53


def philox(seed: Any, draw: Any, trajectory: Any) -> Any:
    """First 64 output bits of Philox4x32-10 with key `seed` and counter (trajectory, draw)."""
    low = 0xFFFF_FFFF
    c0, c1, c2, c3 = trajectory & low, trajectory >> 32, draw & low, draw >> 32
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD251_1F53, c2 * 0xCD9E_8D57
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & low, (p0 >> 32) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + 0x9E37_79B9) & low, (k1 + 0xBB67_AE85) & low
    return c0 | (c1 << 32)


def stream_key(seed: int, draw: int) -> int:
    """Key of the stream over trajectories: trajectory b has the bits entry(stream_key(seed, draw), b)."""
    require_words(seed=seed, draw=draw)
    return int(entry(entry(int(seed), 0), int(draw)))


def bits(seed: int, draw: int, trajectory: int, *, generator: str = "splitmix64") -> int:
    """The 64 random bits of (seed, trajectory, draw)."""
    require_words(seed=seed, draw=draw, trajectory=trajectory)
    if generator == "splitmix64":
        return int(entry(stream_key(seed, draw), int(trajectory)))
    require_generator(generator)
    return int(philox(int(seed), int(draw), int(trajectory)))


def require_words(**values: int) -> None:
    """Refuse coordinates that are no unsigned 64-bit numbers."""
    for name, value in values.items():
        if not 0 <= value <= MASK:
            raise InputError(f"{name}={value}: expected a whole number from 0 to 2**64 - 1")


def require_generator(generator: str) -> None:
    """Refuse a generator that is not one of GENERATORS."""
    if generator not in GENERATORS:
        raise InputError(f"generator {generator!r}: expected one of {', '.join(GENERATORS)}")
