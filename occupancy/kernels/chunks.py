"""Work cut into chunks of whole trajectories, done by numpy or compiled kernels, merged in chunk order.

The cuts depend on the data alone, never on the number of workers, and partial sums are merged in order
with the rounding error carried along (Neumaier's two-sum): the same bits come out on any number of workers,
and the error of a sum stays that of one chunk.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from occupancy.record.errors import InputError
from occupancy.record.types import Float64, Int64

CHUNK_TURNS = 1 << 18
"""Turns in a chunk, one worker's piece: enough to hide what a piece costs in Python."""
BLOCK_TURNS = 1 << 14
SMALL_TURNS = 1 << 21
"""Below this many turns numpy finishes before numba is imported (benchmarks/README.md)."""

Result = TypeVar("Result")


def kernels_for(n_turns: int) -> Any:
    """The module with the kernels: `sums` if large or loaded already, else `small`, with the same bits.

    Importing numba and loading the cached kernels takes 0.7 CPU s, a small batch in numpy 0.02 s: `fewsteps
    occupancy` on a run folder needs no compiler.
    """
    large = n_turns >= SMALL_TURNS or "occupancy.kernels.sums" in sys.modules
    return import_module("occupancy.kernels.sums" if large else "occupancy.kernels.small")


def chunk_turns(n_states: int) -> int:
    """Turns in a chunk when a table of n_states is merged after each."""
    return max(CHUNK_TURNS, 8 * n_states)


def block_turns(n_states: int) -> int:
    """Turns whose weights are summed plainly before the rounding error is carried."""
    return max(BLOCK_TURNS, 8 * n_states)


def cuts(offsets: Int64, size: int) -> Int64:
    """Groups at which chunks of about `size` turns begin, and the number of groups at the end.

    offsets [G + 1] are the turns before each group. A group is never split. A chunk begins with the first
    group that starts at or after a multiple of `size`.
    """
    starts = np.searchsorted(offsets[:-1], np.arange(0, int(offsets[-1]) + 1, size))
    return np.unique(np.concatenate([[0], starts, [len(offsets) - 1]]))


def in_order(work: Callable[[int, int], Result], cuts: Int64, *, workers: int | None) -> Iterator[Result]:
    """work(begin, end) of every chunk, in chunk order; at most two chunks a worker are under way."""
    workers = count_workers(workers)
    spans = list(pairwise(cuts.tolist()))
    if workers == 1 or len(spans) < 2:
        yield from (work(*span) for span in spans)
        return
    with ThreadPoolExecutor(workers) as pool:
        under_way: deque[Future[Result]] = deque()
        for span in spans:
            if len(under_way) == 2 * workers:
                yield under_way.popleft().result()
            under_way.append(pool.submit(work, *span))
        while under_way:
            yield under_way.popleft().result()


def count_workers(workers: int | None) -> int:
    """Worker threads to use; None means one for each processor that this process may use."""
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise InputError(f"workers={workers}: expected at least 1, or None for one a processor")
    return workers


class Total:
    """Running sum of arrays with what rounding lost beside it."""

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        self.sum = np.zeros(shape)
        self.lost = np.zeros(shape)

    def add(self, part: Float64) -> None:
        """Add one chunk's sums; the order of chunks is the caller's."""
        total = self.sum + part
        carried = total - self.sum
        self.lost += (self.sum - (total - carried)) + (part - carried)
        self.sum = total

    @property
    def value(self) -> Float64:
        """The sum with its correction."""
        return self.sum + self.lost
