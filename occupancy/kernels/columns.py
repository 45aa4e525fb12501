"""Named records of arrays that the kernels take: columns of a batch, its weights, and the sums to add to."""

from __future__ import annotations

from typing import NamedTuple

from occupancy.record.types import Float64, Floats, Int32, Int64


class Turns(NamedTuple):
    """Turns of a batch, or of a part: `offsets` index the whole `states`."""

    offsets: Int64
    """[B + 1]"""
    states: Int32
    """[N]"""


class Weights(NamedTuple):
    """Weight factor[b] * turn[i] of turn i of trajectory b; an empty array stands for ones."""

    factor: Float64
    """[B] or [0]"""
    turn: Floats
    """[N] or [0]"""


class Words(NamedTuple):
    """Fixed-point weight of each trajectory, see `fixed_point`; [B] each."""

    high: Int64
    low: Int64


class Groups(NamedTuple):
    """Trajectories by cluster."""

    order: Int64
    """[n] trajectories, those of a cluster side by side."""
    cluster: Int64
    """[B] cluster of every trajectory."""


class Totals(NamedTuple):
    """What residuals are computed from beside the weight of each cluster in each state."""

    mass: Float64
    """[Q] B_q, weight of each cluster."""
    ratio: Float64
    """[S] R, share of each state."""


class Spread(NamedTuple):
    """Sums over clusters q that standard errors by state are computed from; [S] each, added to."""

    residuals: Float64
    """sum (A_q - ratio B_q)^2 over the clusters that visit the state."""
    visited: Float64
    """sum B_q^2 over them."""
