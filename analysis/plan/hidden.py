"""Hidden classes of recorded episodes, fitted by expectation maximisation (Baum-Welch).

P(x' | x) under the student, under the teacher, how episodes end, and the symbols that a class shows; each
recorded episode has one author. An episode that the horizon cut has no end.

Axes: B episodes of one author, T turns, X classes, Y symbols.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.pilot import Flags, Floats, Ints, Pilot, Steps

SWEEPS = 20
SYMBOL_PSEUDO = 0.5
ROW_PSEUDO = 0.01
_TINY = 1e-300


@dataclass(frozen=True)
class Hidden:
    """The fitted classes."""

    gamma: Floats
    """[N, X] chance of each class at each step; 0 where the episode is no data."""
    loglik: tuple[float, ...]
    """Log likelihood before each sweep; without evidence it never falls but for the pseudo-counts' pull."""
    shows: Floats
    """[Y, X] chance of each symbol where a class shows one."""
    silent: Floats
    """[X] as given."""
    kernels: tuple[Floats, ...]
    """[X, X + 2] of student and teacher: transitions, then ends with success and failure."""
    begin: tuple[Floats, ...]
    """[2, X] of each: first classes of episodes that start at turn 1, and of the others."""


@dataclass(frozen=True)
class _Batch:
    """Episodes of one author."""

    rows: Ints
    """[B, T] steps; 0 beyond the end."""
    inside: Flags
    """[B, T]"""
    length: Ints
    """[B]"""
    final: Floats
    """[B] terminal reward; NaN where the episode was cut."""
    begins: Flags
    """[B] the episode starts at turn 1."""


@dataclass(frozen=True)
class _Expected:
    """Expected counts of one author's episodes."""

    gamma: Floats
    """[B, T, X]"""
    moves: Floats
    """[X, X + 2] transitions, then ends with success and failure."""
    begin: Floats
    """[2, X] first classes of episodes that start at turn 1, and of the others."""
    loglik: float


def fit(
    pilot: Pilot,
    label: Ints,
    symbol: Ints,
    *,
    silent: Floats,
    evidence: Floats | None = None,
    sweeps: int = SWEEPS,
) -> Hidden:
    """Refine a first labelling [N] of the steps into hidden classes that show the symbols [N].

    silent: [X] how likely each class is to show nothing (symbol -1), up to a common factor.
    evidence: [N, Y] how likely each symbol makes what else is known of a step that shows nothing.
    """
    n = len(silent)
    steps = pilot.steps
    batches = [_batch(steps, teacher=author) for author in (False, True)]
    gamma = np.full((len(steps), n), 0.3 / n)
    gamma[np.arange(len(steps)), label] += 0.7
    kernels = tuple(_counted(steps, label, n, teacher=author) for author in (False, True))
    begin = tuple(np.full((2, n), 1 / n) for _ in batches)
    path: list[float] = []
    for _ in range(sweeps + 1):
        shows = np.full((n, n), SYMBOL_PSEUDO)
        np.add.at(shows, symbol[symbol >= 0], gamma[symbol >= 0])
        shows /= shows.sum(0)
        gamma, found = _all(steps, batches, kernels, begin, _shown(shows, silent, symbol, evidence))
        kernels = tuple(_normal(part.moves + ROW_PSEUDO) for part in found)
        begin = tuple(_normal(part.begin + ROW_PSEUDO) for part in found)
        path.append(sum(part.loglik for part in found))
    return Hidden(gamma, tuple(path), shows, silent, kernels, begin)


def posterior(pilot: Pilot, hidden: Hidden, symbol: Ints, evidence: Floats | None = None) -> Floats:
    """[N, X] chance of each class at each step, from what the steps show, under the fitted laws."""
    batches = [_batch(pilot.steps, teacher=author) for author in (False, True)]
    shown = _shown(hidden.shows, hidden.silent, symbol, evidence)
    return _all(pilot.steps, batches, hidden.kernels, hidden.begin, shown)[0]


def _shown(shows: Floats, silent: Floats, symbol: Ints, evidence: Floats | None) -> Floats:
    """[N, X] chance of what each step shows in each class, up to a factor."""
    shown = np.vstack([shows, silent])[symbol]
    if evidence is not None:
        quiet = symbol < 0
        shown[quiet] *= evidence[quiet] @ shows
    return np.asarray(shown)


def _all(
    steps: Steps,
    batches: list[_Batch],
    kernels: tuple[Floats, ...],
    begin: tuple[Floats, ...],
    shown: Floats,
) -> tuple[Floats, list[_Expected]]:
    """[N, X] chance of each class, and the expected counts of both authors' episodes."""
    gamma = np.zeros_like(shown)
    found = []
    for batch, kernel, law in zip(batches, kernels, begin, strict=True):
        part = _expect(batch, kernel, law, shown[batch.rows])
        gamma[batch.rows[batch.inside]] = part.gamma[batch.inside]
        found.append(part)
    return gamma, found


def _expect(batch: _Batch, kernel: Floats, begin: Floats, shown: Floats) -> _Expected:
    """One expectation step; shown: [B, T, X] chance of each step's symbol in each class."""
    n = kernel.shape[0]
    inner, win, lose = kernel[:, :n], kernel[:, n], kernel[:, n + 1]
    B, T = batch.rows.shape
    R = np.nan_to_num(batch.final)[:, None]
    cut = np.isnan(batch.final)[:, None]
    wins, loses = np.where(cut, 0.0, R * win), np.where(cut, 0.0, (1 - R) * lose)
    alpha, beta = np.zeros((B, T, n)), np.zeros((B, T, n))
    loglik = 0.0
    for t in range(T):
        law = begin[np.where(batch.begins, 0, 1)] if t == 0 else np.matmul(alpha[:, t - 1], inner)
        now = law * shown[:, t]
        total = np.maximum(now.sum(1, keepdims=True), _TINY)
        alpha[:, t] = now / total
        loglik += float(np.log(total[batch.inside[:, t]]).sum())
    last = np.arange(B), batch.length - 1
    beta[last] = np.where(cut, 1.0, wins + loses)
    loglik += float(np.log(np.maximum((alpha[last] * beta[last]).sum(1), _TINY)).sum())
    for t in range(T - 2, -1, -1):
        ahead = beta[:, t + 1] * shown[:, t + 1]
        ahead = np.matmul(ahead / np.maximum(ahead.sum(1, keepdims=True), _TINY), inner.T)
        live = batch.length - 1 > t
        beta[live, t] = ahead[live]
    gamma = _normal(alpha * beta)
    on = batch.inside[:, 1:]
    left, right = alpha[:, :-1][on], (beta * shown)[:, 1:][on]
    mass = np.maximum(((left @ inner) * right).sum(1, keepdims=True), _TINY)
    share = wins / np.maximum(wins + loses, _TINY)
    ended = np.where(cut, 0.0, gamma[last])
    moves = np.column_stack(
        [(left / mass).T @ right * inner, (ended * share).sum(0), (ended * (1 - share)).sum(0)]
    )
    first = np.stack([gamma[which, 0].sum(0) for which in (batch.begins, ~batch.begins)])
    return _Expected(gamma, moves, first, loglik)


def _batch(steps: Steps, *, teacher: bool) -> _Batch:
    starts = np.append(np.flatnonzero(steps.j == 0), len(steps))
    first = starts[:-1]
    use = (steps.teacher[first] == teacher) & np.isfinite(steps.R[first])
    first, length = first[use], np.diff(starts)[use]
    inside = np.arange(int(length.max(initial=1))) < length[:, None]
    rows = np.where(inside, first[:, None] + np.arange(inside.shape[1]), 0)
    return _Batch(rows, inside, length, steps.final[first + length - 1], steps.start[first])


def _counted(steps: Steps, label: Ints, n: int, *, teacher: bool) -> Floats:
    """Kernel [X, X + 2] of the first labelling."""
    counts = np.full((n, n + 2), 0.1)
    on = np.flatnonzero((steps.teacher == teacher) & (steps.after >= 0))
    np.add.at(counts, (label[on], label[steps.after[on]]), 1.0)
    end = np.flatnonzero((steps.teacher == teacher) & np.isfinite(steps.final))
    np.add.at(counts[:, n], label[end], steps.final[end])
    np.add.at(counts[:, n + 1], label[end], 1.0 - steps.final[end])
    return _normal(counts)


def _normal(counts: Floats) -> Floats:
    return np.asarray(counts / np.maximum(counts.sum(-1, keepdims=True), _TINY))
