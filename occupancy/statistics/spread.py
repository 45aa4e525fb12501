"""Sums over tasks of squared residuals, from which standard errors by state are computed.

For each state the sum is sum_q (A_q - R B_q)^2, where A_q is the weight of task q in the state, B_q its
weight in all states, and R = sum A / sum B: the formula of `clusters` for the sparse table of tasks and
states. Tasks are added in the order of their ids, in chunks that depend on the data only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from occupancy.kernels.chunks import Total, chunk_turns, cuts, in_order, kernels_for
from occupancy.kernels.columns import Groups, Spread, Totals, Turns
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.clusters import clusters


def residuals_of_turns(
    trajectories: Trajectories, kernel: str, given: tuple[Any, Any], ratio: Float64, workers: int | None
) -> tuple[Float64, int]:
    """Sum [S] and the number of tasks with weight, by a kernel and the weights and totals that it takes."""
    S, compute = trajectories.n_states, getattr(kernels_for(trajectories.n_turns), kernel)
    cluster, _ = clusters(trajectories)
    order = np.argsort(cluster, kind="stable")
    begins = np.flatnonzero(np.diff(cluster[order], prepend=-1))
    before = np.concatenate([[0], np.cumsum(trajectories.lengths[order])])
    edges = np.append(begins, len(order))
    turns = Turns(trajectories.offsets, trajectories.states)

    def part(begin: int, end: int) -> Float64:
        sums = np.zeros((2, S + 1))
        chosen = order[edges[begin] : edges[end]]
        out = Spread(sums[0, :S], sums[1, :S])
        sums[:, S] = compute(turns, Groups(chosen, cluster), *given, out)
        return sums

    total = Total((2, S + 1))
    for sums in in_order(part, cuts(before[edges], chunk_turns(S)), workers=workers):
        total.add(sums)
    return _finished(total, ratio)


def residuals_of_cells(
    A: Float64, state: Int64, sizes: Int64, totals: Totals, turns: Int64
) -> tuple[Float64, int]:
    """The same, bit for bit, from A and state by cell, of which task q has sizes[q]; turns by task."""
    mass, ratio = totals
    S = len(ratio)
    total = Total((2, S + 1))
    chunks = cuts(np.concatenate([[0], np.cumsum(turns)]), chunk_turns(S))
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for begin, end in pairwise(chunks.tolist()):
        cells = slice(int(edges[begin]), int(edges[end]))
        s, B = state[cells], np.repeat(mass[begin:end], sizes[begin:end])
        residual = A[cells] - ratio[s] * B
        sums = np.zeros((2, S + 1))
        sums[0, :S] = np.bincount(s, residual * residual, minlength=S)
        sums[1, :S] = np.bincount(s, B * B, minlength=S)
        sums[:, S] = np.cumsum(np.square(mass[begin:end]))[-1], (mass[begin:end] > 0).sum()
        total.add(sums)
    return _finished(total, ratio)


def standard_errors(residuals: Float64, n_tasks: int, total: float) -> Float64 | None:
    """[S] by the delta method; None with a single task."""
    return np.sqrt(residuals * n_tasks / (n_tasks - 1)) / total if n_tasks > 1 else None


def _finished(total: Total, ratio: Float64) -> tuple[Float64, int]:
    """A task that never visits the state has A_q = 0: R^2 times what is left of sum B_q^2."""
    S = len(ratio)
    (residuals, visited), (all_squares, n_tasks) = total.value[:, :S], total.value[:, S]
    return residuals + ratio**2 * np.maximum(all_squares - visited, 0.0), int(n_tasks)
