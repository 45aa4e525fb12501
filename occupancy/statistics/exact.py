"""Occupancies whose sums are whole numbers: pooled, trajectory-uniform and task-pooled, without filters.

A weight is 1, 1/T or 1 / (turns of its task); the last two are fixed-point numbers of two words
(`kernels.fixed_point`). Results therefore do not depend on the order of the data, nor on how they are
divided into parts, threads or machines. If all weights are equal they cancel, and the sums are counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import numpy as np

from occupancy.kernels.chunks import chunk_turns, cuts, in_order, kernels_for
from occupancy.kernels.columns import Totals, Turns, Words
from occupancy.kernels.fixed_point import ONE, carry, reciprocals, to_float
from occupancy.record.shows import Shown, Shows
from occupancy.record.types import Float64, Int64, Trajectories
from occupancy.statistics.clusters import clusters
from occupancy.statistics.spread import residuals_of_turns, standard_errors
from occupancy.statistics.tallies import tally

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Occupancy(Shows):
    """Share of each state among the weighted contexts."""

    probability: Float64
    """[S] sums to 1."""
    standard_error: Float64 | None
    """[S] clustered by task; None with a single task, and where a table was read without."""
    n_tasks: int
    """Tasks with weight: the clusters of the standard error; 0 where a scan did not read them."""
    n_trajectories: int
    """B, empty ones included."""
    n_empty: int
    """Trajectories without a turn: outside every sum and normaliser."""
    ess: float
    """Kish effective number of contexts, (sum w)^2 / sum w^2, as if turns were independent."""
    convention: str

    def most_visited(self, most: int, names: Sequence[Any] = ()) -> list[int]:
        """The `most` states with the largest share; of equals those whose names, or else ids, come first.

        Ids of texts are numbered as the rows come, and rows of a run come as its tasks were finished.
        """
        shares = self.probability
        least = np.partition(shares, -most)[-most] if most < len(shares) else 0.0
        above, equal = (np.flatnonzero(each & (shares > 0)) for each in (shares > least, shares == least))
        if not len(names):  # millions of states may be visited once each
            equal = equal[:most]
        called = names.__getitem__ if len(names) else int
        found = sorted(above.tolist(), key=lambda state: (-shares[state], called(state)))
        return found + nsmallest(most - len(found), equal.tolist(), key=called)

    def to_pandas(self) -> pd.DataFrame:
        """The states, a row each."""
        import pandas as pd

        states = np.arange(len(self.probability))
        columns = {"state": states, "probability": self.probability, "standard_error": self.standard_error}
        return pd.DataFrame(columns)

    def _shown(self) -> Shown:
        most = self.to_pandas().nlargest(10, "probability")
        said = f"{self.convention} occupancy of {len(self.probability):,} states, the most visited"
        return [f"{said}; {self.n_tasks:,} tasks, {self.n_trajectories:,} trajectories"], [most]


@dataclass(frozen=True)
class Counts:
    """Whole numbers of a data set beside the sums by state."""

    tasks: Int64
    """[Q] rising; only those with a turn, where the data come in parts."""
    turns: Int64
    """[Q] turns of each task."""
    trajectories: Int64
    """[Q] trajectories of each task that have a turn."""
    lengths: Int64
    """[L] lengths above 0 that occur, rising."""
    many: Int64
    """[L] trajectories of each."""

    def mass(self, convention: str) -> Float64:
        """[Q] B_q of each task."""
        if convention == "pooled":
            return self.turns.astype(np.float64)
        if convention == "trajectory":
            return self.trajectories.astype(np.float64)
        return (self.turns > 0).astype(np.float64)

    def weights(self, convention: str) -> str:
        """The convention itself, or "pooled" where it gives all turns the same weight."""
        used = self.lengths if convention == "trajectory" else self.turns[self.turns > 0]
        return "pooled" if used.min() == used.max() else convention

    def occupancy(
        self, convention: str, sums: Float64, spread: tuple[Float64, int] | None, known: tuple[int, int]
    ) -> Occupancy:
        """Occupancy from the sums by state [S] and the residuals with the number of tasks.

        known: trajectories, and those without a turn.
        """
        weights = self.weights(convention)
        total = ess = float(self.mass(weights).sum())
        if weights != "pooled":
            if weights == "trajectory":
                T, many = self.lengths, self.many
            else:
                T, many = np.unique(self.turns[self.turns > 0], return_counts=True)
            ess = float(many.sum()) ** 2 / float((many / T).sum())
        errors = None if spread is None else standard_errors(*spread, total)
        n_tasks = int((self.turns > 0).sum())
        return Occupancy(sums / total, errors, n_tasks, *known, ess, convention)


def counts_of(trajectories: Trajectories, cluster: Int64, tasks: Int64) -> Counts:
    """Whole numbers of a batch, all of its tasks; the last two from `clusters`."""
    T = trajectories.lengths
    turns = np.bincount(cluster, T, minlength=len(tasks)).astype(np.int64)
    many = np.bincount(cluster, T > 0, minlength=len(tasks)).astype(np.int64)
    return Counts(tasks, turns, many, *_occurring(T[T > 0]))


def _occurring(T: Int64) -> tuple[Int64, Int64]:
    """Distinct values, rising, and how often each occurs."""
    if _sparse(T):
        values, many = np.unique(T, return_counts=True)
        return values, many
    counts = np.bincount(T)
    values = np.flatnonzero(counts)
    return values, counts[values]


def _one_over(T: Int64) -> tuple[Int64, Int64]:
    """The words of each 1/T."""
    if _sparse(T):
        return reciprocals(T)
    high, low = reciprocals(np.arange(int(T.max()) + 1))
    return high[T], low[T]


def _sparse(T: Int64) -> bool:
    """Whether a table by value would be larger than the values are many."""
    return int(T.max()) > max(1 << 16, len(T))


def exact_occupancy(trajectories: Trajectories, convention: str, workers: int | None) -> Occupancy:
    """Occupancy of a batch that has a turn."""
    cluster, tasks = clusters(trajectories)
    counts = counts_of(trajectories, cluster, tasks)
    weights = counts.weights(convention)
    if weights == "pooled":
        sums = _counted(trajectories, workers)
        high, low = np.full(len(trajectories), ONE), np.zeros(len(trajectories), np.int64)
    elif weights == "trajectory":
        sums = tally(trajectories, workers=workers).inverse_lengths
        high, low = _one_over(trajectories.lengths)
    else:
        high, low = (word[cluster] for word in reciprocals(counts.turns))
        sums = _summed(trajectories, high, low, workers)
    mass = counts.mass(weights)
    share = sums / float(mass.sum())
    given = (Words(high, low), Totals(mass, share))
    spread = residuals_of_turns(trajectories, "spread_words", given, share, workers)
    return counts.occupancy(convention, sums, spread, (len(trajectories), trajectories.n_empty))


def _counted(trajectories: Trajectories, workers: int | None) -> Float64:
    """[S] turns in each state."""
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    offsets = trajectories.offsets

    def part(begin: int, end: int) -> Int64:
        counts = np.zeros(S, np.int64)
        kernels.count_states(trajectories.states[offsets[begin] : offsets[end]], counts)
        return counts

    total = np.zeros(S, np.int64)
    for counts in in_order(part, cuts(offsets, 4 * chunk_turns(S)), workers=workers):
        total += counts
    return total.astype(np.float64)


def _summed(trajectories: Trajectories, high: Int64, low: Int64, workers: int | None) -> Float64:
    """[S] weights given in words by trajectory."""
    kernels, S = kernels_for(trajectories.n_turns), trajectories.n_states
    offsets = trajectories.offsets

    def part(begin: int, end: int) -> Int64:
        table = np.zeros((S, 2), np.int64)
        turns = Turns(offsets[begin : end + 1], trajectories.states)
        kernels.sum_words(turns, Words(high[begin:end], low[begin:end]), table)
        return table

    uppers, lowers = np.zeros((2, S), np.int64)
    for table in in_order(part, cuts(offsets, 4 * chunk_turns(S)), workers=workers):
        uppers, lowers = carry(uppers + table[:, 0], lowers + table[:, 1])
    return to_float(uppers, lowers)
