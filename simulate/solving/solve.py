"""Exact answers for a world and a student: numpy in, numpy out, by `simulate.solving.programming`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulate.solving.jax64 import double_precision
from simulate.worlds.types import Float64, World


@dataclass(frozen=True, eq=False)
class Answers:
    """Exact occupancies and values of a student in a world; row t - 1 belongs to turn t."""

    J_student: float
    """pass@1 of the student."""
    J_teacher: float
    """pass@1 of the teacher."""
    by_turn: Float64
    """[T, S] d_t(s): chance that the student's episode still runs at turn t and is in s."""
    mean_length: float
    """E[T] of the student, turns."""
    pooled: Float64
    """[S] occupancy with every context counted once: sum_t d_t / E[T]."""
    per_trajectory: Float64
    """[S] trajectory-uniform occupancy: sum_t d_t u_t with u_t(s) = E[1/T | s_t = s]."""
    V_student: Float64
    """[T, S] chance that the student succeeds from there."""
    V_teacher: Float64
    """[T, S] chance that the teacher succeeds from there."""


def answers(world: World, student: Any = None) -> Answers:
    """Exact occupancies and values of a student: pass@1, V, pooled and trajectory-uniform occupancies.

    Args:
        world: where it plays.
        student: [X, A] its policy by context, by default pi_0; float64, rows sum to 1.
    """
    T = world.horizon
    with double_precision():
        from simulate.solving import programming

        mine, theirs = _chains(world, student)
        by_turn, u = programming.occupancies(mine, T), programming.inverse_length(mine, T)
        V, V_e = programming.value(mine, T), programming.value(theirs, T)
    by_turn, u, V, V_e = map(np.asarray, (by_turn, u, V, V_e))
    mean_length = float(by_turn.sum())
    return Answers(
        J_student=float(world.start @ V[0]),
        J_teacher=float(world.start @ V_e[0]),
        by_turn=by_turn,
        mean_length=mean_length,
        pooled=by_turn.sum(axis=0) / mean_length,
        per_trajectory=(by_turn * u).sum(axis=0),
        V_student=V,
        V_teacher=V_e,
    )


def hand_backs(world: World, student: Any = None) -> Float64:
    """[K + 1, T, S] U_k(t, s): the teacher plays k turns from there, then the student [X, A] finishes."""
    with double_precision():
        from simulate.solving import programming

        mine, theirs = _chains(world, student)
        return np.asarray(programming.hand_backs(theirs, programming.value(mine, world.horizon)))


def _chains(world: World, student: Any) -> tuple[Any, Any]:
    """The world under a student, by default pi_0, and under the teacher."""
    from simulate.solving.programming import chain

    policies = world.by_state(world.base if student is None else student), world.teacher
    mine, theirs = (chain(world.start, world.successors, world.chances, policy) for policy in policies)
    return mine, theirs
