"""Answers by sampling, for chains that are too large for dynamic programming.

The state of the generator is (seed, trajectory, turn), and what is kept are whole-number counts: the same
bits on any number of workers.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy.kernels.rng import stream_key
from occupancy.record.errors import InputError
from simulate.worlds.types import Float64, Int64, World

CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Sample:
    """Counts over sampled episodes, by the episode's length T (row T; row 0 stays empty)."""

    counts: Int64
    """[T + 1, S] visits to a state in episodes of that length."""
    ends: Int64
    """[T + 1, 3] episodes of that length that ended in success, in failure, at the horizon."""

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return int(self.ends.sum())

    @property
    def turns(self) -> int:
        """Number of turns."""
        return int(self.counts.sum())

    @property
    def pooled(self) -> Float64:
        """[S] occupancy with every context counted once."""
        return np.asarray(self.counts.sum(axis=0) / self.turns)

    @property
    def per_trajectory(self) -> Float64:
        """[S] trajectory-uniform occupancy."""
        lengths = np.maximum(np.arange(len(self.counts)), 1)
        return np.asarray((self.counts / lengths[:, None]).sum(axis=0) / self.episodes)

    @property
    def J(self) -> float:
        """Share of successes."""
        return float(self.ends[:, 0].sum() / self.episodes)


def sample(world: World, policy: Any, episodes: int, *, seed: int, workers: int = 1) -> Sample:
    """Play episodes of a policy over contexts [X, A], or over states [S, A], and count visits."""
    from simulate.exact import kernels

    if episodes < 1 or workers < 1:
        raise InputError(f"episodes={episodes}, workers={workers}: expected at least 1 of each")
    table = np.asarray(policy, np.float64)
    table = table if table.shape == world.teacher.shape else world.by_state(table)
    first, first_shift = alias_table(np.arange(world.S)[None], world.start[None])
    steps, shift = alias_table(world.successors, np.einsum("sa,sau->su", table, world.chances))
    keys = np.array([stream_key(seed, t) for t in range(world.horizon + 1)], np.uint64)

    def play(begin: int) -> tuple[Int64, Int64]:
        counts = np.zeros((world.horizon + 1, world.S), np.uint32)
        ends = np.zeros((world.horizon + 1, 3), np.int64)
        end = min(begin + CHUNK, episodes)
        kernels.walk(first, first_shift, steps, shift, keys, begin, end, counts, ends)
        return counts.astype(np.int64), ends

    counts = np.zeros((world.horizon + 1, world.S), np.int64)
    ends = np.zeros((world.horizon + 1, 3), np.int64)
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(play, range(0, episodes, CHUNK)):
            counts += part[0]
            ends += part[1]
    return Sample(counts, ends)


def alias_table(outcomes: Any, probs: Float64) -> tuple[Any, int]:
    """[rows, columns, 2] alias table of laws [rows, n] over outcomes [rows, n], and its column shift."""
    from simulate.exact import kernels

    width = max(1, int((probs > 0).sum(axis=1).max()))
    order = np.argsort(-probs, axis=1, kind="stable")[:, :width]
    bits = max(1, math.ceil(math.log2(width)))
    shift = 32 - bits
    table = np.zeros((len(probs), 1 << bits, 2), np.uint64)
    kept = np.take_along_axis(np.asarray(outcomes, np.int64), order, axis=1)
    kernels.alias_rows(kept, np.take_along_axis(probs, order, axis=1), table)
    return table, shift
