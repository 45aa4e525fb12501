"""Features whose weighted means carry a distance between occupancies: one row of sums a unit.

A unit is the part of one task in one batch. Sums by unit are enough for the distance and for every
relabelling of tasks, so a permutation test never goes back to the turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Any

import numpy as np

from occupancy.record.errors import DataError
from occupancy.record.types import Float64, Floats, Int64, refuse_not_finite

FREQUENCIES = 256
DIRECTIONS = 64
THRESHOLDS = 64
BLOCK = 1 << 14


@dataclass(frozen=True)
class Units:
    """Turns of both batches side by side."""

    unit: Int64
    """[N] unit of each turn."""
    weight: Float64
    """[N]"""
    states: Int64
    """[N]"""
    features: Floats | None
    """[N, D]"""
    n_units: int
    n_states: int


def by_state(units: Units) -> Any:
    """[U, S] sparse: weight of each state in each unit."""
    from scipy.sparse import csr_array

    shape = (units.n_units, units.n_states)
    return csr_array((units.weight, (units.unit, units.states)), shape=shape)


def by_frequency(units: Units, *, seed: int) -> Float64:
    """[U, 2F] sums of random Fourier features of a Gaussian kernel (Rahimi and Recht 2007).

    The kernel's width is the median distance between a thousand random pairs of turns.
    """
    X, random = _features(units), np.random.Generator(np.random.Philox(seed))
    pairs = random.integers(0, len(X), (2, 1000))
    width = float(np.median(np.linalg.norm(X[pairs[0]].astype(np.float64) - X[pairs[1]], axis=1))) or 1.0
    frequencies = random.normal(size=(X.shape[1], FREQUENCIES)) / width

    def wave(x: Float64) -> Float64:
        angle = x @ frequencies
        return np.asarray(np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / np.sqrt(FREQUENCIES))

    return _sums(units, X, wave, 2 * FREQUENCIES)


def by_threshold(units: Units, *, seed: int) -> Float64:
    """[U, F] sums of steps 1{u x <= c} along random directions u, each times the root of its cell's width.

    The squared distance of two means is then half of the energy distance: along a line it is
    2 int (F - G)^2, and |x| is c_D times the mean of |u x| over directions (Szekely and Rizzo 2013).
    """
    X, random = _features(units), np.random.Generator(np.random.Philox(seed))
    D = X.shape[1]
    directions = random.normal(size=(D, DIRECTIONS if D > 1 else 1))
    directions /= np.linalg.norm(directions, axis=0)
    sample = X if len(X) <= BLOCK else X[random.integers(0, len(X), BLOCK)]
    projected = np.sort(sample.astype(np.float64) @ directions, axis=0)
    grid = [_grid(column) for column in projected.T]
    scale = np.exp(log(pi) / 2 + lgamma((D + 1) / 2) - lgamma(D / 2)) / len(grid)
    roots = np.concatenate([np.sqrt(np.diff(cells, append=cells[-1]) * scale) for cells in grid])

    def steps(x: Float64) -> Float64:
        along = x @ directions
        below = [along[:, [k]] <= cells for k, cells in enumerate(grid)]
        return np.asarray(np.concatenate(below, axis=1) * roots)

    return _sums(units, X, steps, len(roots))


def _grid(values: Float64) -> Float64:
    """Up to THRESHOLDS distinct values, evenly spaced among the sorted `values`."""
    distinct = np.unique(values)
    if len(distinct) <= THRESHOLDS:
        return distinct
    return np.unique(values[np.linspace(0, len(values) - 1, THRESHOLDS).astype(np.int64)])


def _features(units: Units) -> Floats:
    if units.features is None:
        raise DataError("a distance on embeddings needs features: give Trajectories(features=...)")
    refuse_not_finite(units.features)
    return units.features


def _sums(units: Units, X: Floats, embed: Any, width: int) -> Float64:
    """[U, width] weighted sums by unit, in blocks of turns: linear time, bounded memory."""
    from scipy.sparse import csr_array

    sums = np.zeros((units.n_units, width))
    for begin in range(0, len(X), BLOCK):
        rows = slice(begin, begin + BLOCK)
        here, turn = units.unit[rows], np.arange(len(units.unit[rows]))
        owner = csr_array((units.weight[rows], (here, turn)), shape=(units.n_units, len(turn)))
        sums += owner @ embed(X[rows].astype(np.float64))
    return sums
