"""Random numbers by counter: the number is a function of (seed, trajectory, draw) and of nothing else.

No state is carried, so a draw does not depend on thread count, on chunking or on the draws before it.
The three coordinates are nested SplitMix64 streams: the seed's first output seeds a stream over draws,
whose entry seeds a stream over trajectories (Steele, Lea and Flood, OOPSLA 2014; mixing constants of
Stafford's variant 13).

benchmarks/README.md has the results of the dieharder test battery, and the speed.

Every function here is plain arithmetic on unsigned 64-bit values and runs on Python integers and on numpy
uint64 arrays; numba compiles `mix` and `uniform` as they stand, see `occupancy.kernels.draw`.
"""

from __future__ import annotations

from typing import Any

from occupancy.record.errors import InputError

MASK = 0xFFFF_FFFF_FFFF_FFFF
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


def stream_key(seed: int, draw: int) -> int:
    """Key of the stream over trajectories: trajectory b has the bits entry(stream_key(seed, draw), b)."""
    require_words(seed=seed, draw=draw)
    return int(entry(entry(int(seed), 0), int(draw)))


def bits(seed: int, draw: int, trajectory: int) -> int:
    """The 64 random bits of (seed, trajectory, draw)."""
    require_words(seed=seed, draw=draw, trajectory=trajectory)
    return int(entry(stream_key(seed, draw), int(trajectory)))


def require_words(**values: int) -> None:
    """Refuse coordinates that are no unsigned 64-bit numbers."""
    for name, value in values.items():
        if not 0 <= value <= MASK:
            raise InputError(f"{name}={value}: expected a whole number from 0 to 2**64 - 1")
