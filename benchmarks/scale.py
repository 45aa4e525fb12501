"""How time, memory and bytes grow with the number of turns: the tally of both occupancies.

    python -m benchmarks scale [--largest 1e9] [--workers 1]

Up to 1e8 turns the batch is in memory; above, blocks of 1e7 turns are made one after the other and only the
tally is timed. CPU time of the process, after a first call on a small batch.
"""

from __future__ import annotations

import resource
import time

from benchmarks.ragged import batch
from occupancy import tally
from occupancy.kernels import sums as kernels
from occupancy.statistics.tallies import Tally

IN_MEMORY, BLOCK = 10**8, 10**7


def main(largest: float = 1e9, workers: int = 1) -> None:
    tally(batch(10_000), workers=workers)
    print(f"kernels: {kernels.__name__}")
    print(f"{'turns':>16}{'bytes':>16}{'CPU s':>10}{'ns a turn':>11}{'peak MB':>9}")
    size = 10**5
    while size <= largest:
        turns, bytes_, seconds, total = 0, 0, 0.0, None
        while turns < size * 0.99:
            b = batch(min(size, BLOCK if size > IN_MEMORY else size), seed=turns)
            begin = time.process_time()
            found = tally(b, workers=workers)
            total = found if total is None else total + found
            seconds += time.process_time() - begin
            turns += b.n_turns
            bytes_ += b.states.nbytes + b.offsets.nbytes
        assert isinstance(total, Tally)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{turns:>16,}{bytes_:>16,}{seconds:>10.4f}{seconds / turns * 1e9:>11.3f}{peak:>9.0f}", flush=True
        )
        size *= 10
