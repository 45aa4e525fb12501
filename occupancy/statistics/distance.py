"""Distances between two occupancies, with p-values from relabelling whole tasks.

    tv       total variation, 1/2 sum |p - q|, in [0, 1]
    js       Jensen-Shannon divergence in nats, in [0, log 2]
    chi2     sum (p - q)^2 / (p + q), in [0, 2]
    mmd      squared maximum mean discrepancy of the features, Gaussian kernel
    energy   energy distance of the features

Plug-in distances of samples are biased upwards; the permutation test compares like with like.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from occupancy.record.errors import DataError, InputError, one_of
from occupancy.record.types import Float64, Trajectories
from occupancy.record.types import Int64 as Labels
from occupancy.statistics.conventions import context_weights
from occupancy.statistics.embed import Units, by_frequency, by_state, by_threshold

ROUND = 64
Formula = Callable[[Float64, Float64], Float64]


@dataclass(frozen=True)
class Comparison:
    """Distance between two batches with its permutation p-value."""

    distance: str
    value: float
    p_value: float
    """(1 + relabellings at least as far apart) / (1 + permutations)."""
    permutations: int
    n_paired: int
    """Tasks in both batches, whose two parts can be swapped."""
    n_single: int
    """Tasks in one batch only, which can be relabelled."""


def total_variation(p: Float64, q: Float64) -> Float64:
    """1/2 sum |p - q| over the last axis."""
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def jensen_shannon(p: Float64, q: Float64) -> Float64:
    """Mean divergence in nats of p and q from their midpoint, over the last axis."""
    middle = (p + q) / 2

    def divergence(r: Float64) -> Float64:
        fraction = np.divide(r, middle, out=np.ones_like(r), where=r > 0)
        return np.asarray((r * np.log(fraction)).sum(axis=-1))

    return np.asarray(np.maximum(divergence(p) + divergence(q), 0.0) / 2)


def chi_square(p: Float64, q: Float64) -> Float64:
    """sum (p - q)^2 / (p + q) over the last axis, states without mass left out."""
    total = p + q
    share = np.divide((p - q) ** 2, total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(share.sum(axis=-1))


def _squared(p: Float64, q: Float64) -> Float64:
    return np.asarray(((p - q) ** 2).sum(axis=-1))


_FORMULAS: dict[str, Formula] = {
    "tv": total_variation,
    "js": jensen_shannon,
    "chi2": chi_square,
    "mmd": _squared,
    "energy": lambda p, q: 2 * _squared(p, q),
}


DISTANCES = tuple(_FORMULAS)


def compare(
    a: Trajectories,
    b: Trajectories,
    *,
    convention: str,
    distance: str = "tv",
    permutations: int = 999,
    seed: int = 0,
) -> Comparison:
    """Distance between the occupancies of two batches that share state and task ids, with a p-value.

    Under the null hypothesis the two parts of a task that is in both batches can be swapped, and tasks that
    are in one batch only can be relabelled.

    Args:
        a: A batch.
        b: A batch; mmd and energy need features of the same width in both.
        convention: As in `occupancy`.
        distance: tv, js, chi2, mmd or energy.
        permutations: Relabellings drawn, at least 1.
        seed: Of the relabellings, and of the random features of mmd and energy.

    Raises:
        DataError: A batch has no context with weight, or features of another width.
        InputError: The distance or the number of permutations is impossible.
    """
    one_of(DISTANCES, distance=distance)
    if permutations < 1:
        raise InputError(f"permutations={permutations}: expected at least 1")
    units, label, partner = _units(a, b, convention)
    if distance == "mmd":
        sums: Any = by_frequency(units, seed=seed)
    elif distance == "energy":
        sums = by_threshold(units, seed=seed)
    else:
        sums = by_state(units)
    totals = np.bincount(units.unit, units.weight, minlength=units.n_units).astype(np.float64)
    formula, random = _FORMULAS[distance], np.random.Generator(np.random.Philox(seed))
    value = float(_apart(sums, totals, label[None], formula)[0])
    as_far = 0
    for begin in range(0, permutations, ROUND):
        n = min(ROUND, permutations - begin)
        relabelled = _relabel(label, partner, n, random)
        as_far += int((_apart(sums, totals, relabelled, formula) >= value * (1 - 1e-9)).sum())
    p_value, paired = (1 + as_far) / (1 + permutations), int((partner >= 0).sum()) // 2
    return Comparison(distance, value, p_value, permutations, paired, len(label) - 2 * paired)


def _units(a: Trajectories, b: Trajectories, convention: str) -> tuple[Units, Labels, Labels]:
    """All turns with their unit; the batch of each unit [U]; the unit of the same task in the other or -1."""
    batches = (a, b)
    rows = [t.feature_rows for t in batches]
    width = [None if r is None else r.shape[1] for r in rows]
    if width[0] != width[1]:
        raise DataError(f"features have {width[0]} and {width[1]} columns: expected the same in both batches")
    tasks = np.concatenate([t.tasks.astype(np.int64) * 2 + side for side, t in enumerate(batches)])
    keys, unit = np.unique(tasks, return_inverse=True)
    given = [t.weights for t in batches if t.weights is not None]
    both = Trajectories(  # one batch, so that a common factor left out is common to both
        np.concatenate([a.offsets, b.offsets[1:] + a.n_turns]),
        np.concatenate([a.states, b.states]),
        unit,
        n_states=max(a.n_states, b.n_states),
        weights=np.concatenate(given) if len(given) == 2 else None,
    )
    factor, turn = context_weights(both, convention)
    weight = np.repeat(factor, both.lengths) if factor.size else np.ones(both.n_turns)
    weight = weight * turn if turn.size else weight
    unit = np.repeat(unit, both.lengths)
    for side, name in enumerate("ab"):
        if not weight[keys[unit] % 2 == side].sum() > 0:
            raise DataError(f"batch {name} has no context with weight: expected one in both batches")
    partner = np.full(len(keys), -1)
    first = np.flatnonzero(np.diff(keys // 2) == 0)
    partner[first], partner[first + 1] = first + 1, first
    features = None if rows[0] is None or rows[1] is None else np.concatenate([rows[0], rows[1]])
    units = Units(unit, weight, both.states.astype(np.int64), features, len(keys), both.n_states)
    return units, keys % 2, partner


def _apart(sums: Any, totals: Float64, label: Labels, formula: Formula) -> Float64:
    """[P] distance of the two sides for each labelling [P, U] of units."""
    in_b = label.astype(np.float64)
    sides = [
        np.asarray((sums.T @ chosen.T).T) / np.maximum(chosen @ totals, np.finfo(float).tiny)[:, None]
        for chosen in (1 - in_b, in_b)
    ]
    return np.asarray(formula(sides[0], sides[1]))


def _relabel(label: Labels, partner: Labels, n: int, random: np.random.Generator) -> Labels:
    """[n, U] labels: pairs swapped by a fair coin, units without a partner shuffled among themselves."""
    out = np.tile(label, (n, 1))
    first = np.flatnonzero(partner > np.arange(len(label)))
    swap = random.integers(0, 2, (n, len(first)))
    out[:, first] = np.where(swap, 1 - label[first], label[first])
    out[:, partner[first]] = 1 - out[:, first]
    single = np.flatnonzero(partner < 0)
    out[:, single] = random.permuted(out[:, single], axis=1)
    return out
