"""Random words of one stream as raw little-endian bytes on standard output, without end.

python -m benchmarks rng_stream --stream splitmix64-trajectories | dieharder -a -g 200

*-trajectories   first draws of consecutive trajectories, seed 1
*-seeds          first draws of trajectory 0 under consecutive seeds
numpy-philox     numpy's Philox4x64 as the control
"""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np

from occupancy.kernels import rng
from occupancy.kernels.draw import Stream, compiled, fill_bits, mix

BLOCK = 1 << 17


@compiled
def fill_splitmix64_seeds(first: np.uint64, out: np.ndarray) -> None:
    golden = np.uint64(rng.GOLDEN)
    for i in range(out.size):
        key = mix(first + np.uint64(i) + golden)
        out[i] = mix(mix(key + golden) + golden)


def fill(stream: str, first: int, out: np.ndarray) -> None:
    """Words first, first + 1, .. of a keyed stream."""
    if stream == "splitmix64-seeds":
        fill_splitmix64_seeds(np.uint64(first), out)
    else:
        fill_bits(Stream(np.uint64(rng.stream_key(1, 0)), np.uint64(first)), out)


def main(stream: Literal["splitmix64-trajectories", "splitmix64-seeds", "numpy-philox"]) -> None:
    first, out = 0, np.empty(BLOCK, np.uint64)
    control = np.random.Generator(np.random.Philox(1)).bit_generator
    while True:
        if stream == "numpy-philox":
            out[:] = control.random_raw(BLOCK)
        else:
            fill(stream, first, out)
        try:
            sys.stdout.buffer.write(out.astype("<u8", copy=False).data)
        except BrokenPipeError:  # the reader has had enough
            sys.stderr.close()
            return
        first += BLOCK
