"""Worlds that could have left this pilot: classes filled with the contexts seen, and with unseen ones.

The class chain says where a turn leads; a Pitman-Yor law says how often each context of a class comes and
how many were never met (`coverage`). Here both become a world with contexts of its own: the pilot's, with
the moves seen there, some unseen ones, and groups of rare ones. Playing a recipe in such a world tells what
no mean over classes does: a student fails where its contexts are rare, so that failed rollouts point to
what is not learnt yet, and who is stuck stays in one context.

Axes: N steps, G contexts of the pilot, V nodes (contexts, or groups of rare ones), X classes, M moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan.classes import Classes
from analysis.plan.filling import Filled, fill
from analysis.plan.imagined_places import Places
from analysis.plan.pilot import STEP_KINDS, Floats, Ints, Pilot, Steps

OWN = 4.0
"""Turns of its class that a context's own moves are mixed with."""
DROPPED, MOVES = 0.01, 8
"""Share of a class's moves that is left out as too rare, and the most targets that are kept."""
NONE, MANY = -1, -2


@dataclass(frozen=True)
class Ground:
    """What a pilot says of single contexts."""

    label: Ints
    """[G] class of each state."""
    tasks: Ints
    """[G] tasks that met it."""
    unit: Ints
    """[G] the context that is read there."""
    unit_label: Ints
    """[C] class of each context."""
    unit_tasks: Ints
    """[C] tasks that met it."""
    starts: Ints
    """[G] rollouts that begin there."""
    moved: Floats
    """[2, G, X + 2] moves of student and teacher to other contexts by class, and to the two ends."""
    stayed: Floats
    """[2, G] their moves to the same context."""
    to: Ints
    """[G, X] the context of that class where its moves led; NONE where to none, MANY where to several."""
    fixed: Floats
    """[X, X] chance that two moves from one context to a class lead to the same context."""
    demos: Floats
    """[C] labels that the pilot's demonstrations are."""
    on_policy: Floats
    """[C] and its continuations."""


@dataclass(frozen=True)
class Imagined:
    """One such world, and what the pilot's own traces teach there."""

    places: Places
    demos: Floats
    """[W] labels of the pilot's demonstrations."""
    on_policy: Floats
    """[W] and of its continuations."""


def survey(pilot: Pilot, classes: Classes) -> Ground:
    """Count a pilot by context."""
    steps, X = pilot.steps, classes.n
    label, tasks = _told(steps.state, steps, classes)
    unit_label, unit_tasks = _told(steps.node, steps, classes)
    G, C = len(label), len(unit_label)
    unit = np.zeros(G, np.int64)
    unit[steps.state] = steps.node
    moved, stayed = np.zeros((2, G, X + 2)), np.zeros((2, G))
    known, author = np.isfinite(steps.R), steps.teacher.astype(int)
    on = np.flatnonzero(known & (steps.after >= 0))
    off = np.flatnonzero(known & np.isfinite(steps.final))
    here, there = steps.state[on], steps.state[steps.after[on]]
    away = here != there
    np.add.at(moved, (author[on][away], here[away], label[there[away]]), 1.0)
    np.add.at(stayed, (author[on][~away], here[~away]), 1.0)
    np.add.at(moved[:, :, X], (author[off], steps.state[off]), steps.final[off])
    np.add.at(moved[:, :, X + 1], (author[off], steps.state[off]), 1.0 - steps.final[off])
    to, fixed = _links(here[away], there[away], label, X)
    return Ground(
        label=label,
        tasks=tasks,
        unit=unit,
        unit_label=unit_label,
        unit_tasks=unit_tasks,
        starts=np.bincount(steps.state[steps.start & (steps.kind == 0)], minlength=G),
        moved=moved,
        stayed=stayed,
        to=to,
        fixed=fixed,
        demos=_labels(steps, "demo", C),
        on_policy=_labels(steps, "continuation", C),
    )


def imagine(
    ground: Ground,
    *,
    start: Floats,
    kernels: Floats,
    tokens: Floats,
    laws: Floats,
    kappa: float,
    rng: np.random.Generator,
) -> Imagined:
    """Fill the classes of one draw with contexts.

    start [X], kernels [2, X, X + 2] of student and teacher, the last columns success and failure; tokens
    [X] of a teacher turn; laws: [2, X, 2] discount and strength of each class, of contexts and of states;
    kappa: labels after which half of a context is learnt.
    """
    X = len(start)
    # The pilot's contexts come first in their class.
    order = np.argsort(ground.label, kind="stable")
    filled = fill(ground.tasks[order], ground.label[order], laws[1], rng)
    own = filled.own
    place = np.empty(len(order), np.int64)
    place[order] = np.flatnonzero(filled.seen)
    moves, laws_of = _moves(ground, kernels)
    to = _targets(ground, moves, filled, place=place, rng=rng)
    policies = laws_of[:, own]
    seen = np.concatenate(
        [
            ground.stayed[:, :, None],
            np.take_along_axis(ground.moved, np.broadcast_to(moves[ground.label], (2, len(order), MOVES)), 2),
        ],
        2,
    )
    mixed = seen * (laws_of[:, ground.label] > 0) + OWN * laws_of[:, ground.label]
    policies[:, place] = mixed / mixed.sum(2, keepdims=True)
    unseen = np.ones(len(own))
    unseen[place] = ground.starts > 0
    begins = filled.weight * unseen
    law = start[own] * begins / np.maximum(np.bincount(own, begins, X), 1e-300)[own]
    unit, crowd = _units(ground, laws[0], filled, place=place, rng=rng)
    labels = np.zeros((2, len(crowd)))
    labels[:, : len(ground.demos)] = ground.demos, ground.on_policy
    return Imagined(
        Places(
            start=law / law.sum(),
            to=to,
            student=policies[0],
            teacher=policies[1],
            used=policies.shape[2] - (policies[:, :, ::-1] > 0).any(0).argmax(1),
            first=np.searchsorted(own, np.arange(X + 1)),
            weight=filled.weight,
            within=filled.within,
            guide=filled.guide,
            tokens=tokens[own],
            unit=unit,
            kappa=kappa * crowd,
        ),
        demos=labels[0],
        on_policy=labels[1],
    )


def _units(
    ground: Ground, law: Floats, nodes: Filled, *, place: Ints, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """[V] context of each node and [W] how many contexts each unit stands for; the pilot's come first."""
    C = len(ground.unit_label)
    unit = np.full(len(nodes.own), -1)
    unit[place] = ground.unit
    rest = np.flatnonzero(unit < 0)
    if len(ground.label) == C:  # states are contexts
        unit[rest] = C + np.arange(len(rest))
        return unit, np.concatenate([np.ones(C), nodes.size[rest]])
    order = np.argsort(ground.unit_label, kind="stable")
    filled = fill(ground.unit_tasks[order], ground.unit_label[order], law, rng)
    names = np.empty(len(filled.own), np.int64)
    names[filled.seen] = order
    names[~filled.seen] = C + np.arange((~filled.seen).sum())
    unit[rest] = names[filled.pick(nodes.own[rest], rng.random(len(rest)))]
    return unit, np.concatenate([np.ones(C), filled.size[~filled.seen]])


def _moves(ground: Ground, kernels: Floats) -> tuple[Ints, Floats]:
    """[X, MOVES] where a class leads, the likeliest first, and [2, X, 1 + MOVES] laws: stay, then those."""
    X = kernels.shape[1]
    share = kernels.max(0)
    moves = np.argsort(-share, axis=1, kind="stable")[:, :MOVES]
    moves = np.pad(moves, ((0, 0), (0, MOVES - moves.shape[1])), constant_values=X + 1)
    ranked = np.take_along_axis(share, moves, 1)
    before = np.cumsum(ranked, axis=1) - ranked
    kept = before < (1 - DROPPED) * share.sum(1, keepdims=True)
    kept &= np.arange(MOVES) < X + 2
    classes = ground.label
    laws = np.zeros((2, X, 1 + MOVES))
    for author in (0, 1):
        same = np.bincount(classes, ground.stayed[author], X)
        other = np.bincount(classes, ground.moved[author, np.arange(len(classes)), classes], X)
        stay = (same + 1.0) / (same + other + 2.0)
        chance = np.take_along_axis(kernels[author], moves, 1) * kept
        chance *= np.where(moves == np.arange(X)[:, None], 1.0 - stay[:, None], 1.0)
        laws[author] = np.column_stack([kernels[author][np.arange(X), np.arange(X)] * stay, chance])
    return moves, laws / np.maximum(laws.sum(2, keepdims=True), 1e-300)


def _targets(
    ground: Ground, moves: Ints, nodes: Filled, *, place: Ints, rng: np.random.Generator
) -> np.ndarray:
    """[V, 1 + MOVES] codes of `Places.to`: a context leads to contexts of its own, a group to any."""
    V, X = len(nodes.own), len(moves)
    y = moves[nodes.own]
    to = V + y
    inner = y < X
    chance = ground.fixed[nodes.own[:, None], np.minimum(y, X - 1)]
    drawn = rng.random((2, *y.shape))
    linked = inner & (nodes.size == 1)[:, None] & (drawn[0] < chance)
    to[linked] = nodes.pick(y[linked], drawn[1][linked])
    led = np.take_along_axis(
        np.pad(ground.to, ((0, 0), (0, 2)), constant_values=NONE), moves[ground.label], 1
    )
    mine = to[place]
    mine = np.where(led == MANY, V + moves[ground.label], mine)
    to[place] = np.where(led >= 0, place[np.maximum(led, 0)], mine)
    return np.column_stack([np.arange(V), to]).astype(np.int32)


def _told(node: Ints, steps: Steps, classes: Classes) -> tuple[Ints, Ints]:
    """Class of each context or state, and how many tasks met it."""
    n = int(node.max()) + 1
    votes = np.zeros((n, classes.n))
    np.add.at(votes, (node, classes.label), 1.0)
    met = np.unique(np.column_stack([node, steps.cluster]), axis=0)[:, 0]
    return votes.argmax(1), np.bincount(met, minlength=n)


def _links(here: Ints, there: Ints, label: Ints, X: int) -> tuple[Ints, Floats]:
    """Where moves [n] from context to context led by class, and how often twice to the same one."""
    G = len(label)
    pairs, times = np.unique(np.column_stack([here, there]), axis=0, return_counts=True)
    at = pairs[:, 0], label[pairs[:, 1]]
    total, alike, distinct = np.zeros((3, G, X))
    np.add.at(total, at, times.astype(float))
    np.add.at(alike, at, times * (times - 1.0))
    np.add.at(distinct, at, 1.0)
    to = np.full((G, X), NONE)
    to[at] = pairs[:, 1]
    to[distinct > 1] = MANY
    twice, same = np.zeros((2, X, X))
    np.add.at(twice, label, total * (total - 1))
    np.add.at(same, label, alike)
    return to, (same + 1.0) / (twice + 2.0)


def _labels(steps: Steps, kind: str, C: int) -> Floats:
    chosen = steps.teacher & (steps.kind == STEP_KINDS.index(kind))
    return np.bincount(steps.node[chosen], minlength=C).astype(np.float64)
