"""Signs of a context that no teacher met: the student's turn there, and what it read last.

A context shows a symbol only where a teacher played (`classes`); elsewhere there are weaker signs. What they
say of the symbol is learnt on the student's steps at known contexts of other tasks (naive Bayes). How much a
sign counts is chosen by what it is for: contexts that the teacher met in one task alone are taken for
unknown, and a sign is read only where it clearly helps to tell how often the student succeeds from there.
The log probability of their symbols would be the usual score, but symbols are many and the chain is too
sure of itself: a few steps far off would decide.

Axes: N steps, S signs, Y symbols, V values of a sign, M steps that are scored.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.plan.hidden import Hidden, fit, posterior
from analysis.plan.pilot import Flags, Floats, Ints, Pilot, Steps

SIGNS = ("log probability", "parse status", "repetition", "turn", "words read")
"""Of the student's turn."""
WORDS = 64
"""Hashed words of an observation."""
WEIGHTS = (0.25, 0.5, 1.0)
CLEAR = 2.33
"""Standard errors, clustered by task, that a gain must be above 0: 5 % over five signs."""
LEAST = 0.05
"""Share of the squared error that a sign must take away."""
USUAL = 16.0
"""Steps with the usual signs that each symbol's own are mixed with."""
SWEEPS, FOLDS = 1, 2
"""Of a fit without symbols (more change nothing there), and of tasks."""
_TINY = 1e-300


@dataclass(frozen=True)
class _Fold:
    """Contexts taken for unknown, and the chain without their symbols."""

    hidden: Hidden
    symbol: Ints
    """[N] as if their symbols were unknown."""
    rows: Ints
    """[M] student's steps there."""
    truth: Ints
    """[M] their symbols."""
    before: Floats
    """[M, Y] log probability of each symbol without signs."""
    ratios: Floats
    """[S, M, Y]"""
    worth: Floats
    """[Y] how often the student succeeds from each symbol."""

    def alone(self, weights: Floats) -> Floats:
        """[M] error where each step is told its own signs alone."""
        return self.error(self.before + np.tensordot(weights, self.ratios, 1))

    def together(self, pilot: Pilot, weights: Floats) -> Floats:
        """[M] error where all are told theirs."""
        told = evidence(pilot.steps, self.symbol, weights, n=len(self.worth))
        return self.error(_log_shares(pilot, self.hidden, self.symbol, self.rows, told))

    def error(self, logs: Floats) -> Floats:
        """[M] squared error of how often the student succeeds, from log probabilities [M, Y]."""
        return np.asarray((_shares(logs) @ self.worth - self.worth[self.truth]) ** 2)


def hashed_words(said: pd.Series[str]) -> Flags:
    """[N, V] which hashed words each text holds."""
    code, texts = pd.factorize(said)
    table = np.zeros((len(texts), WORDS), bool)
    for at, text in enumerate(texts):
        table[at, [zlib.crc32(word.encode()) % WORDS for word in set(text.split())]] = True
    return np.asarray(table[code])


def sentence(weights: tuple[float, ...]) -> str:
    """What a plan says of signs with these weights [S]."""
    read = [f"{name} ({weight:g})" for name, weight in zip(SIGNS, weights, strict=True) if weight]
    told = "contexts that no teacher met are told by the turns around them"
    if not read:
        return f"{told}; no sign of the student's turn there clearly helps ({', '.join(SIGNS)})"
    return f"{told} and by signs of the student's turn there, weighted on held-out tasks: {', '.join(read)}"


def weigh_signs(pilot: Pilot, first: Ints, symbol: Ints, *, silent: Floats) -> Floats:
    """[S] weight of each sign; 0 where it does not clearly help.

    first [N]: first labels; symbol [N]: -1 where unknown; silent: as of `hidden.fit`.
    """
    steps, none = pilot.steps, np.zeros(len(SIGNS))
    # A hand-back begins where a teacher was, so nowhere unknown.
    usable = ~steps.teacher & np.isfinite(steps.R) & ((steps.j > 0) | steps.start)
    hidden = [hide for hide in _met_by_one_task(steps) if (hide & usable).any()]
    if not hidden:
        return none
    folds = [
        _fold(pilot, first, symbol, hide=hide, rows=np.flatnonzero(hide & usable), silent=silent)
        for hide in hidden
    ]
    tasks = np.concatenate([steps.cluster[fold.rows] for fold in folds])

    def alone(weights: Floats) -> Floats:
        return np.concatenate([fold.alone(weights) for fold in folds])

    def helps(before: Floats, after: Floats) -> bool:
        return bool(after.sum() < (1 - LEAST) * before.sum()) and clear(before - after, tasks)

    weights = none
    for _ in SIGNS:
        unread = np.flatnonzero(weights == 0)
        trials = [np.where(np.arange(len(SIGNS)) == s, w, weights) for s in unread for w in WEIGHTS]
        best = min(trials, key=lambda trial: alone(trial).sum())
        if not helps(alone(weights), alone(best)):
            break
        weights = best
    if not weights.any():
        return none
    # Signs of neighbouring steps say much the same: together they may count for less, or not help at all.
    after = {w: np.concatenate([fold.together(pilot, w * weights) for fold in folds]) for w in WEIGHTS}
    share = min(after, key=lambda w: after[w].sum())
    return share * weights if helps(alone(none), after[share]) else none


def evidence(steps: Steps, symbol: Ints, weights: Floats, *, n: int) -> Floats:
    """[N, n] likelihood of each step's signs under n symbols, up to a factor; 1 where one is shown."""
    rows = np.flatnonzero(symbol < 0)
    told = np.ones((len(steps), n))
    told[rows] = np.exp(np.tensordot(weights, log_ratios(steps, symbol, rows, n=n), 1))
    return told


def log_ratios(steps: Steps, symbol: Ints, rows: Ints, *, n: int) -> Floats:
    """[S, M, n] log P(sign | symbol) / P(sign) at the steps `rows`; learnt on steps of other tasks."""
    found = np.zeros((len(SIGNS), len(rows), n))
    known, fold_of = ~steps.teacher & (symbol >= 0), _fold_of(steps)[steps.cluster]
    for fold in range(FOLDS):
        learnt = np.flatnonzero(known & (fold_of != fold))
        mine = np.flatnonzero(fold_of[rows] == fold)
        shown = np.eye(n)[symbol[learnt]]
        for s, code in enumerate(_codes(steps, learnt)):
            size, there = int(code.max()) + 1, code[rows[mine]]
            held = code[learnt] >= 0
            if size > 1:  # else it never differs, and says nothing
                ratio = _log_ratio(np.eye(size)[code[learnt][held]], shown[held], size)
                found[s, mine] = np.where(there[:, None] >= 0, ratio[there], 0.0)
        # The mean over words, as if one of them had been read: they are not independent.
        words = steps.words[rows[mine]].astype(float)
        ratio = _log_ratio(steps.words[learnt].astype(float), shown, 2)
        found[-1, mine] = words @ ratio / np.maximum(words.sum(1, keepdims=True), 1.0)
    return found


def clear(gain: Floats, cluster: Ints) -> bool:
    """Whether the gains [M] are above 0 by more than chance between tasks brings."""
    by_task = np.bincount(np.unique(cluster, return_inverse=True)[1], gain)
    Q = len(by_task)
    if Q < 2:
        return False
    error = np.sqrt(Q / (Q - 1) * ((by_task - by_task.mean()) ** 2).sum())
    return bool(by_task.sum() > CLEAR * error)


def _codes(steps: Steps, learnt: Ints) -> list[Ints]:
    """[N] value of each sign but the words, from 0; -1 where the pilot does not hold it."""
    held = np.isfinite(steps.logprob)
    some = steps.logprob[learnt][held[learnt]]
    cuts = np.quantile(some, (0.25, 0.5, 0.75)) if len(some) else np.zeros(3)
    quarter = np.searchsorted(cuts, np.where(held, steps.logprob, 0.0))
    turn = np.log2(steps.t)
    yes_or_no = (steps.unparsed, steps.repeats)
    return [np.where(held, quarter, -1), *(sign.astype(np.int64) for sign in (*yes_or_no, turn))]


def _log_ratio(value: Floats, shown: Floats, size: int) -> Floats:
    """[V, Y] log P(v | y) / P(v) from the values [n, V] and symbols [n, Y] of steps, 1 where held.

    size: how many values exclude each other.
    """
    count = value.T @ shown
    usual = (count.sum(1) + 0.5) / (len(shown) + 0.5 * size)
    law = (count + USUAL * usual[:, None]) / (shown.sum(0) + USUAL)
    return np.asarray(np.log(law / usual[:, None]))


def _met_by_one_task(steps: Steps) -> list[Flags]:
    """[FOLDS][N] steps at contexts that the teacher met in one task alone, by that task's fold."""
    pairs = np.unique(np.column_stack([steps.node, steps.cluster])[steps.teacher], axis=0)
    nodes = int(steps.node.max()) + 1
    tasks, task = np.bincount(pairs[:, 0], minlength=nodes), np.zeros(nodes, np.int64)
    task[pairs[:, 0]] = pairs[:, 1]
    return [((tasks == 1) & (_fold_of(steps)[task] == fold))[steps.node] for fold in range(FOLDS)]


def _fold_of(steps: Steps) -> Ints:
    """[Q] fold of each task; drawn, since tasks may come in some order."""
    return np.asarray(np.random.default_rng(0).permutation(int(steps.cluster.max()) + 1) % FOLDS)


def _fold(pilot: Pilot, first: Ints, symbol: Ints, *, hide: Flags, rows: Ints, silent: Floats) -> _Fold:
    steps, n, masked = pilot.steps, len(silent), np.where(hide, -1, symbol)
    hidden = fit(pilot, first, masked, silent=silent, sweeps=SWEEPS)
    seen = np.flatnonzero(~steps.teacher & (masked >= 0) & np.isfinite(steps.R))
    at, R = masked[seen], steps.R[seen]
    return _Fold(
        hidden=hidden,
        symbol=masked,
        rows=rows,
        truth=symbol[rows],
        before=_log_shares(pilot, hidden, masked, rows),
        ratios=log_ratios(steps, masked, rows, n=n),
        worth=(np.bincount(at, R, n) + USUAL * R.mean()) / (np.bincount(at, minlength=n) + USUAL),
    )


def _log_shares(pilot: Pilot, hidden: Hidden, symbol: Ints, rows: Ints, told: Floats | None = None) -> Floats:
    """[M, Y] log probability of each symbol at the steps `rows`."""
    gamma = posterior(pilot, hidden, symbol, told)[rows]
    return np.asarray(np.log(np.maximum(gamma @ hidden.shows.T, _TINY)))


def _shares(logs: Floats) -> Floats:
    """[M, Y] probabilities from logs, up to a factor."""
    share = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(share / share.sum(1, keepdims=True))
