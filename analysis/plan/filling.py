"""How often each context of a class comes, those included that a pilot did not meet.

A class's contexts follow a Pitman-Yor law (`coverage`). Given how many tasks met each, the law's posterior is
Dirichlet for what was seen and broken sticks for the rest (Pitman 1996).

Axes: K contexts seen, X classes, V nodes, sorted by class, what was seen first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analysis.plan.pilot import Flags, Floats, Ints

SINGLES, GROUPS = 6, 4
"""Unseen contexts of a class that are nodes of their own, and groups of the rest."""


@dataclass(frozen=True)
class Filled:
    """Nodes of all classes."""

    own: Ints
    """[V] class, rising."""
    seen: Flags
    """[V] a context of the pilot, in the order given."""
    weight: Floats
    """[V] how often it comes; within a class they sum to 1."""
    size: Floats
    """[V] contexts that the node stands for."""

    @cached_property
    def within(self) -> Floats:
        """[V] running sums of the weights of a class, the last one 1."""
        total = np.cumsum(self.weight)
        first = np.searchsorted(self.own, self.own)
        running = total - (total - self.weight)[first]
        running[np.append(self.own[1:] != self.own[:-1], True)] = 1.0
        return np.minimum(running, 1.0)

    @property
    def guide(self) -> Ints:
        """[V] where the running sums of a class of n nodes first pass 0, 1 / n, 2 / n, ..."""
        first = np.searchsorted(self.own, self.own)
        rank = np.arange(len(self.own)) - first
        return self.pick(self.own, rank / np.bincount(self.own)[self.own])

    def pick(self, classes: Ints, u: Floats) -> Ints:
        """[n] a node of each class [n], as often as it comes, for uniform u [n]."""
        # Running sums within classes, one after the other: class x owns the numbers from x to x + 1.
        found = np.searchsorted(self.own + self.within, classes + u, side="right")
        return np.minimum(found, np.searchsorted(self.own, classes, side="right") - 1)


def fill(tasks: Ints, label: Ints, law: Floats, rng: np.random.Generator) -> Filled:
    """Fill every class; tasks, label: [K] tasks that met each context and its class, sorted by class.

    law: [X, 2] discount a and strength b of each class; a < 0: b / -a contexts in all.
    """
    a, b = law.T
    X = len(a)
    seen = np.bincount(label, minlength=X)
    finite = a < 0
    left = np.where(finite, np.maximum(np.round(b / -np.minimum(a, -1e-9)), np.maximum(seen, 1)) - seen, 0)
    few = np.where(finite, np.minimum(left, SINGLES + GROUPS), SINGLES + GROUPS).astype(np.int64)
    own = np.repeat(np.arange(X), seen + few)
    rank = np.arange(len(own)) - np.searchsorted(own, own)
    known = rank < seen[own]
    weight, size = np.zeros(len(own)), np.ones(len(own))
    weight[known] = rng.gamma(tasks - a[label])
    some = ~known & finite[own]
    size[some] = (left / np.maximum(few, 1))[own[some]]
    weight[some] = rng.gamma(-a[own[some]] * size[some])
    rare = ~known & ~finite[own]
    weight[rare], size[rare] = (part.ravel() for part in _sticks(a[~finite], (b + a * seen)[~finite], rng))
    weight = np.maximum(weight, 1e-12)
    return Filled(own, known, weight / np.bincount(own, weight, X)[own], size)


def _sticks(a: Floats, strength: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Weights and sizes [I, SINGLES + GROUPS] of what was not seen, on the scale of the seen ones' gammas."""
    mass = rng.gamma(strength)
    stick = rng.beta((1 - a)[:, None], strength[:, None] + a[:, None] * np.arange(1, SINGLES + 1))
    rest = mass[:, None] * np.cumprod(np.column_stack([np.ones(len(a)), 1 - stick]), axis=1)
    strength = strength + a * SINGLES
    size = np.ones((len(a), SINGLES + GROUPS))
    half = rest[:, -1:] * 0.5 ** np.arange(1, GROUPS + 1)
    half[:, -1] *= 2
    for group in range(SINGLES, SINGLES + GROUPS):
        # A stick takes (1 - a) / (1 - a + strength + a) of the rest: so many of them halve it.
        size[:, group] = np.maximum(np.log(2) * (strength + 1) / (1 - a), 1.0)
        strength = strength + a * size[:, group]
    return np.column_stack([rest[:, :-1] * stick, half]), size
