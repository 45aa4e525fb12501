"""Bootstrap over tasks from the sums by cluster: the same statistic as the delta method, resampled.

`gather` draws C tasks with replacement (Efron). `poisson` gives every task an independent Poisson(1)
count, which needs no random access and may be done over parts of the data (Chamandy et al. 2012); its
number of tasks varies, and with few tasks a replicate can be empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from occupancy.kernels.chunks import in_order
from occupancy.kernels.rng import stream_key
from occupancy.record.errors import DataError, InputError, one_of
from occupancy.record.types import Float64
from occupancy.statistics.clusters import ClusterSums

SCHEMES = ("poisson", "gather")


@dataclass(frozen=True)
class Bootstrap:
    """Replicates of a ratio."""

    values: Float64
    """[R, D]"""
    standard_error: Float64
    """[D] standard deviation of the replicates."""

    def interval(self, level: float = 0.95) -> tuple[Float64, Float64]:
        """Lower and upper percentile bounds [D]."""
        low, high = np.quantile(self.values, [(1 - level) / 2, (1 + level) / 2], axis=0)
        return low, high


def bootstrap(
    sums: ClusterSums,
    *,
    seed: int,
    replicates: int = 1000,
    scheme: str = "poisson",
    workers: int | None = None,
) -> Bootstrap:
    """Replicates of the ratio sum_q A_q / sum_q B_q over resampled tasks.

    Args:
        sums: Sums by task, from `cluster_sums`.
        seed: From 0 to 2**64 - 1.
        replicates: R, at least 2.
        scheme: poisson or gather.
        workers: Threads; the result is the same for any number.

    Raises:
        DataError: Fewer than 2 tasks have weight, or a Poisson replicate drew no task.
    """
    from occupancy.kernels import resample as kernels_resample

    one_of(SCHEMES, scheme=scheme)
    if replicates < 2:
        raise InputError(f"replicates={replicates}: expected at least 2")
    weighted = sums.denominators > 0
    columns = np.column_stack([sums.numerators, sums.denominators])[weighted]
    if len(columns) < 2:
        raise DataError(f"a bootstrap over {len(columns)} task with weight: expected at least 2 tasks")
    key, size = np.uint64(stream_key(seed, 0)), kernels_resample.BLOCK
    kernel = kernels_resample.poisson_block if scheme == "poisson" else kernels_resample.gather_block

    def part(block: int, _: int) -> Float64:
        out = np.zeros((columns.shape[1], size))
        kernel(columns, key, np.uint64(block), out)
        return out

    n_blocks = -(-replicates // size)
    totals = np.concatenate(list(in_order(part, np.arange(n_blocks + 1), workers=workers)), axis=1)
    A, B = totals[:-1, :replicates], totals[-1, :replicates]
    if not B.all():
        raise DataError(
            f"{int((B == 0).sum())} Poisson replicates drew none of {len(columns)} tasks: use scheme='gather'"
        )
    values = (A / B).T
    return Bootstrap(values, values.std(axis=0, ddof=1))
