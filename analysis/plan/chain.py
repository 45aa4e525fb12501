"""The class chain: how student and teacher move between classes of contexts, and what a context costs.

Axes: D draws of the bootstrap, X classes, T turns. Every function works on all draws at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.classes import Classes
from analysis.plan.pilot import Floats, Pilot

PSEUDO = 1.0
"""Transitions that the prior row counts as."""


@dataclass(frozen=True)
class Kernels:
    """Turn kernels of student and teacher over classes, with the start law."""

    start: Floats
    """[D, X]"""
    student: Floats
    """[D, X, X] the rest of each row ends the episode."""
    teacher: Floats
    """[D, X, X]"""
    student_wins: Floats
    """[D, X] chance that the student's turn ends the episode with success."""
    teacher_wins: Floats
    """[D, X]"""
    T_max: int

    def of(self, draw: int) -> Floats:
        """[2, X, X + 2] laws of student and teacher in one draw, success and failure last."""
        inner = np.stack([self.student[draw], self.teacher[draw]])
        wins = np.stack([self.student_wins[draw], self.teacher_wins[draw]])
        loses = np.maximum(1.0 - inner.sum(2) - wins, 0.0)
        return np.concatenate([inner, wins[..., None], loses[..., None]], axis=2)


def kernels(pilot: Pilot, classes: Classes, weights: Floats) -> Kernels:
    """Estimate the kernels for each row of weights [D, Q], the multiplicities of the tasks."""
    steps, X, Q = pilot.steps, classes.n, len(pilot.clusters)
    known = np.isfinite(steps.R) & ((steps.after >= 0) | np.isfinite(steps.final))
    counts = []
    for who in (~steps.teacher, steps.teacher):
        rows = np.flatnonzero(known & who)
        table = np.zeros((Q, X, X + 2))
        inside = steps.after[rows] >= 0
        on, off = rows[inside], rows[~inside]
        np.add.at(table, (steps.cluster[on], classes.label[on], classes.label[steps.after[on]]), 1.0)
        np.add.at(table[:, :, X], (steps.cluster[off], classes.label[off]), steps.final[off])
        np.add.at(table[:, :, X + 1], (steps.cluster[off], classes.label[off]), 1.0 - steps.final[off])
        counts.append(np.tensordot(weights, table, (1, 0)))
    stay = np.concatenate([np.eye(X), np.zeros((X, 2))], axis=1)
    student = _rows(counts[0], stay)
    teacher = _rows(counts[1], student)
    first = steps.start & (steps.kind == 0)
    begin = np.zeros((Q, X))
    np.add.at(begin, (steps.cluster[first], classes.label[first]), 1.0)
    start = weights @ begin
    return Kernels(
        start=start / start.sum(1, keepdims=True),
        student=student[:, :, :X],
        teacher=teacher[:, :, :X],
        student_wins=student[:, :, X],
        teacher_wins=teacher[:, :, X],
        T_max=pilot.recipe.T_max,
    )


def contexts(start: Floats, kernel: Floats, *, T_max: int) -> Floats:
    """[D, X] law of the context at a turn t' ~ Unif{1..T} of one rollout: weight E[1/T | x_t]."""
    ends = 1.0 - kernel.sum(2)
    alive = [start]
    for _ in range(T_max - 1):
        alive.append(_turn(alive[-1], kernel))
    total, later = np.zeros_like(start), np.full_like(start, 1.0 / T_max)
    for t in range(T_max, 0, -1):
        if t < T_max:
            later = ends / t + np.einsum("dxy,dy->dx", kernel, later)
        total += alive[t - 1] * later
    return total


def exposure(law: Floats, teacher: Floats, *, depths: list[int]) -> Floats:
    """[K, D, X] expected teacher turns in each class within each depth, from contexts with this law."""
    by_depth, seen, now = [], np.zeros_like(law), law
    for _ in range(max(depths)):
        seen = seen + now
        now = _turn(now, teacher)
        by_depth.append(seen)
    return np.stack([by_depth[k - 1] for k in depths])


def _turn(law: Floats, kernel: Floats) -> Floats:
    return np.asarray(np.matmul(law[:, None, :], kernel)[:, 0])


def _rows(counts: Floats, prior: Floats) -> Floats:
    return np.asarray((counts + PSEUDO * prior) / (counts.sum(-1, keepdims=True) + PSEUDO))
