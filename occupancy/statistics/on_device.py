"""The estimators on device arrays: traceable, so they run inside `jax.jit` beside a simulator or a model.

Sums are in float64 whatever the caller's default precision, and results come back in that precision.
Nothing can be raised from compiled code, so input is trusted (`Trajectories` validates), a batch without
weight gives nan, and so does the standard error of a single task. `n_states` and `n_tasks` are static.
"""

# ruff: noqa: PLR0917 - a private function may list what two public ones share
from __future__ import annotations

import math
from typing import NamedTuple

from occupancy.record.errors import DataError, MissingExtra, one_of
from occupancy.statistics.conventions import CONVENTIONS

try:
    import jax
    import jax.numpy as jnp
    from jax import Array
except ImportError as error:
    raise MissingExtra("jax", "simulate") from error


class DeviceEstimate(NamedTuple):
    """An occupancy or a mean; fields as in `occupancy.Occupancy` and `occupancy.Mean`."""

    value: Array
    """[S] probability of each state, or [D] mean of each feature."""
    standard_error: Array
    """Shape of `value`; nan with a single task."""
    n_tasks: Array
    ess: Array


def occupancy(
    offsets: Array,
    states: Array,
    tasks: Array,
    *,
    n_states: int,
    n_tasks: int,
    convention: str,
    weights: Array | None = None,
    psi: Array | None = None,
    p_phi: Array | None = None,
) -> DeviceEstimate:
    """d^w(s) of a batch in compressed-sparse-row form; tasks [B] lie below `n_tasks`."""
    precision = jax.dtypes.canonicalize_dtype(float)
    with jax.enable_x64(True):
        if not len(states):  # nothing to sort: no context has weight
            nothing = jnp.full(n_states, jnp.nan)
            return _estimate(nothing, nothing, jnp.zeros(n_tasks), jnp.zeros(0), precision)
        w, cluster = _weights(offsets, tasks, n_tasks, len(states), convention, weights, psi, p_phi)
        B = _sum(w, cluster, n_tasks)
        total = B.sum()
        p = _sum(w, states, n_states) / total
        order = jnp.lexsort((states, cluster))
        q, s, sorted_w = cluster[order], states[order], w[order]
        new = (q != jnp.roll(q, 1)) | (s != jnp.roll(s, 1))
        cell = jnp.cumsum(new.at[0].set(True)) - 1
        A = _sum(sorted_w, cell, len(states))
        first = jnp.zeros(len(states), jnp.int64).at[cell].max(jnp.arange(len(states)))
        q, s, used = q[first], s[first], jnp.arange(len(states)) <= cell[-1]
        residual = jnp.where(used, (A - p[s] * B[q]) ** 2, 0.0)
        absent = jnp.where(used, B[q] ** 2, 0.0)
        never = jnp.maximum((B**2).sum() - _sum(absent, s, n_states), 0.0)
        variance = (_sum(residual, s, n_states) + p**2 * never) / total**2
        return _estimate(p, variance, B, w, precision)


def mean(
    offsets: Array,
    features: Array,
    tasks: Array,
    *,
    n_tasks: int,
    convention: str,
    weights: Array | None = None,
    psi: Array | None = None,
    p_phi: Array | None = None,
) -> DeviceEstimate:
    """Weighted mean over contexts of features [N] or [N, D]; the value has no axis, or D."""
    precision = jax.dtypes.canonicalize_dtype(float)
    with jax.enable_x64(True):
        w, cluster = _weights(offsets, tasks, n_tasks, len(features), convention, weights, psi, p_phi)
        B = _sum(w, cluster, n_tasks)
        rows = features.astype(jnp.float64).reshape(len(features), math.prod(features.shape[1:]))
        A = jax.ops.segment_sum(w[:, None] * rows, cluster, num_segments=n_tasks)
        R = A.sum(axis=0) / B.sum()
        variance = ((A - R * B[:, None]) ** 2).sum(axis=0) / B.sum() ** 2
        shape = features.shape[1:]
        return _estimate(R.reshape(shape), variance.reshape(shape), B, w, precision)


def _weights(
    offsets: Array,
    tasks: Array,
    n_tasks: int,
    n_turns: int,
    convention: str,
    weights: Array | None,
    psi: Array | None,
    p_phi: Array | None,
) -> tuple[Array, Array]:
    """Weight and task of every turn."""
    one_of(CONVENTIONS, convention=convention)
    lengths = jnp.diff(offsets)
    owner = jnp.repeat(jnp.arange(len(lengths)), lengths, total_repeat_length=n_turns)
    cluster = tasks[owner]
    w = jnp.ones(n_turns, jnp.float64)
    if convention == "trajectory":
        w = w / lengths[owner]
    elif convention == "task":
        w = w / _sum(w, cluster, n_tasks)[cluster]
    elif convention == "weights":
        if weights is None:
            raise DataError("convention 'weights' without weights: give weights=[N]")
        w = weights.astype(jnp.float64)
    if psi is not None:
        w = w * psi[owner]
    if p_phi is not None:
        w = w * p_phi
    return w, cluster


def _sum(values: Array, group: Array, n_groups: int) -> Array:
    return jax.ops.segment_sum(values, group, num_segments=n_groups)


def _estimate(value: Array, variance: Array, B: Array, w: Array, precision: object) -> DeviceEstimate:
    C = (B > 0).sum()
    error = jnp.sqrt(variance * C / (C - 1))
    error = jnp.where(C > 1, error, jnp.nan)
    ess = w.sum() ** 2 / (w * w).sum()
    return DeviceEstimate(
        value.astype(precision), error.astype(precision), C.astype(jnp.int32), ess.astype(precision)
    )
