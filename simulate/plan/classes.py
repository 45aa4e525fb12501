"""Context classes found from the pilot itself: what a context must be told by to predict the rest.

A node (a context that can come again) first gets a symbol from the teacher's turns there: how many turns
the teacher still needed, and whether demonstrations pass through it. Nodes that only the student met are
"unknown". Classes are the hidden states behind these symbols, fitted to whole episodes (`hidden`): the
turns before and after an unknown context tell its class, and no class has seen its own episode's end
more than a likelihood allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulate.plan.hidden import Hidden, fit
from simulate.plan.pilot import Flags, Ints, Pilot, Steps

MOST_LEFT = 8
"""Turns left that are told apart on the teacher's own path; off it, half as many again."""
LEAST_REPEATED = 0.25
"""Share of the student's turns that must be at nodes which another task met too."""


@dataclass(frozen=True)
class Classes:
    """A class for every step."""

    label: Ints
    """[N] class, 0 .. n - 1."""
    n: int
    """X, number of classes."""


def find_classes(pilot: Pilot) -> Classes:
    """Group the steps of a pilot into classes."""
    symbol, unknown = symbols(pilot.steps)
    first = _carried(pilot.steps, symbol, unknown)
    hidden: Hidden = fit(pilot, first, symbol, n=int(symbol.max()) + 1)
    names, label = np.unique(hidden.gamma.argmax(1), return_inverse=True)
    return Classes(label=label.astype(np.int64), n=len(names))


def repeated_share(steps: Steps) -> float:
    """Share of the student's turns at nodes that at least two tasks met: what identity can tell."""
    pairs = np.unique(np.column_stack([steps.node, steps.cluster]), axis=0)
    tasks = np.bincount(pairs[:, 0], minlength=int(steps.node.max()) + 1)
    return float((tasks[steps.node[~steps.teacher]] > 1).mean())


def symbols(steps: Steps) -> tuple[Ints, Flags]:
    """[N] symbol of each step's node, and whether it is the unknown one."""
    nodes = int(steps.node.max()) + 1
    at = steps.node[steps.teacher]
    left = (steps.length - steps.t + 1)[steps.teacher]
    visits = np.bincount(at, minlength=nodes)
    mean_left = np.round(np.bincount(at, left, nodes) / np.maximum(visits, 1)).astype(np.int64)
    own_path = np.bincount(steps.node[steps.kind == 2], minlength=nodes) > 0
    on, off = np.minimum(mean_left, MOST_LEFT), np.minimum(mean_left, MOST_LEFT * 3 // 2)
    code = np.where(visits == 0, 0, np.where(own_path, 1 + on, 100 + off))
    short = np.unique(code, return_inverse=True)[1]
    return short[steps.node].astype(np.int64), (code == 0)[steps.node]


def _carried(steps: Steps, symbol: Ints, unknown: Flags) -> Ints:
    """First labels: an unknown context takes the last known symbol of its episode, else the next one."""
    label = symbol.copy()
    for i in range(1, len(label)):
        if unknown[i] and steps.j[i] > 0:
            label[i] = label[i - 1]
    still = unknown & (label == symbol)
    for i in range(len(label) - 2, -1, -1):
        if still[i] and steps.j[i + 1] > 0:
            label[i] = label[i + 1]
    return label
