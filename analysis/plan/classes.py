"""Context classes found from the pilot itself: what a context must be told by to predict the rest.

A node (a context that can come again) first gets a symbol from the teacher's turns there: how many turns
the teacher still needed, whether demonstrations pass through it, whether it was lost there, and whether the
student mostly stays. Nodes that only the student met are "unknown". Classes are the hidden states behind
these symbols, fitted to whole episodes (`hidden`): the turns before and after an unknown context tell its
class, with signs of the student's turn there where they help (`signs`), and no class has seen its own
episode's end more than a likelihood allows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.hidden import fit
from analysis.plan.pilot import Flags, Ints, Pilot, Steps
from analysis.plan.signs import SIGNS, evidence, weigh_signs

MOST_LEFT = 8
"""Turns left that are told apart on the teacher's own path; off it, half as many again."""
STUCK, LOST = 0.6, 0.5
SILENT = 0.05
"""How seldom a context from which nobody returns is one that no teacher met, beside the other classes."""
_ON, _OFF, _HARD, _LOST = 1, 100, 200, 1000


@dataclass(frozen=True)
class Classes:
    """A class for every step."""

    label: Ints
    """[N] class, 0 .. n - 1."""
    n: int
    """X, number of classes."""
    weights: tuple[float, ...] = (0.0,) * len(SIGNS)
    """[S] how much each sign counts at contexts that no teacher met; 0 where it is not read."""


def find_classes(pilot: Pilot) -> Classes:
    """Group the steps of a pilot into classes."""
    symbol = symbols(pilot.steps)
    first = _carried(pilot.steps, symbol)
    silent = np.ones(int(symbol.max()) + 1)
    if _lost(pilot.steps, int(pilot.steps.node.max()) + 1).any():
        silent[-1] = SILENT  # its symbol is the last one
    weights = weigh_signs(pilot, first, symbol, silent=silent)
    told = evidence(pilot.steps, symbol, weights, n=len(silent)) if weights.any() else None
    hidden = fit(pilot, first, symbol, silent=silent, evidence=told)
    names, label = np.unique(hidden.gamma.argmax(1), return_inverse=True)
    return Classes(label=label.astype(np.int64), n=len(names), weights=tuple(weights.tolist()))


def symbols(steps: Steps) -> Ints:
    """[N] symbol of each step's node; -1 where the teacher never played, so that nothing is shown."""
    nodes = int(steps.node.max()) + 1
    at = steps.node[steps.teacher]
    left = (steps.length - steps.t + 1)[steps.teacher]
    visits = np.bincount(at, minlength=nodes)
    mean_left = np.round(np.bincount(at, left, nodes) / np.maximum(visits, 1)).astype(np.int64)
    own_path = np.bincount(steps.node[steps.kind == 2], minlength=nodes) > 0
    on, off = np.minimum(mean_left, MOST_LEFT), np.minimum(mean_left, MOST_LEFT * 3 // 2)
    known = np.where(own_path, _ON + on, _OFF + off)
    code = np.where(visits == 0, 0, np.where(_lost(steps, nodes), _LOST, known))
    code = np.where((code > 0) & (code < _LOST) & _hard(steps, nodes), code + _HARD, code)
    short = np.unique(code, return_inverse=True)[1] - (code == 0).any()
    return np.asarray(short[steps.node], np.int64)


def _lost(steps: Steps, nodes: int) -> Flags:
    """[nodes] the teacher fails from there, by more tasks than chance would bring."""
    known = steps.teacher & np.isfinite(steps.R)
    met = np.unique(
        np.column_stack([steps.node[known], steps.cluster[known], steps.R[known] >= 0.5]).astype(np.int64),
        axis=0,
    )
    won, lost = (np.bincount(met[met[:, 2] == end, 0], minlength=nodes) for end in (1, 0))
    usual = float((steps.R[known] >= 0.5).mean())
    # As if two more tasks had gone as usual: one failure says little where failures are rare.
    return np.asarray((won + 2 * usual) / (won + lost + 2) < LOST)


def _hard(steps: Steps, nodes: int) -> Flags:
    """[nodes] the student mostly stays where it is."""
    mine = np.flatnonzero(~steps.teacher & (steps.after >= 0))
    here, there = steps.node[mine], steps.node[steps.after[mine]]
    stays = np.bincount(here[here == there], minlength=nodes)
    visits = np.bincount(here, minlength=nodes)
    return np.asarray((visits >= 2) & (stays > STUCK * visits))


def _carried(steps: Steps, symbol: Ints) -> Ints:
    """First labels: an unknown context takes the last known symbol of its episode, else the next one."""
    label = symbol.copy()
    for i in range(1, len(label)):
        if label[i] < 0 and steps.j[i] > 0:
            label[i] = label[i - 1]
    for i in range(len(label) - 2, -1, -1):
        if label[i] < 0 and steps.j[i + 1] > 0:
            label[i] = label[i + 1]
    # An episode without any known context starts in the class of most steps.
    return np.where(label < 0, np.bincount(label[label >= 0]).argmax(), label)
