"""Algorithm 1 in an imagined world: what recipes and their budgets would buy, and what that would teach.

Where rollouts are switched is known exactly (`imagined_exact`); what the teacher then does is drawn.
Continuations of one context are one continuation, cut at each recipe's K.

Axes: O recipes, R shares of on-policy data, W units.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from analysis.plan.imagined_exact import switches, values
from analysis.plan.imagined_places import Places, passed, teach
from occupancy.kernels.compiled import compiled
from simulate.pipelines.kernels import entry
from simulate.pipelines.order import CONTINUE, DEMO
from simulate.worlds.types import Float64, Int64

Index: TypeAlias = int | np.int64

PROPOSALS, CONTEXTS, BOUGHT, TRAINED, UNSPENT = range(5)
LEDGER = 5
"""Columns of a ledger: rollouts of the student, contexts, teacher tokens bought, trained on and left."""


class Wishes(NamedTuple):
    """Recipes to be bought. Those that follow each other with one law and share use the same contexts."""

    law: Int64
    """[O] of the switch; see `imagined_exact`."""
    share: Int64
    """[O] which students make the prefixes: those of this share's demonstrations."""
    K: Int64
    """[O]"""
    success_only: Int64
    """[O] 0 or 1: failed continuations are paid and not trained on."""
    budget: Float64
    """[O] teacher tokens for each."""


class Play(NamedTuple):
    """How purchases are played."""

    times: float
    """Episodes that a played one stands for."""
    most: int
    """Rollouts after which a filter accepts too little."""
    by_training: bool
    """What is not trained on is not charged."""
    skill: float
    """Share of what tells the teacher's successes from its failures that is its own doing, and is learnt."""


@compiled
def outcomes(
    places: Places, play: Play, demos: Wishes, on_policy: Wishes, keys: np.ndarray, owned: Float64
) -> tuple[Float64, Float64, Float64]:
    """Pass@1 [O + 2] of the students that each recipe trains, of one that learnt nothing and one that
    learnt everything, and ledgers of demonstrations [R, LEDGER] and continuations [O, LEDGER].

    demos: R wishes, one a share; on_policy: O wishes. keys: `outcome.pipeline_keys`. owned: [2, W]
    labels of demonstrations and of continuations that are trained on anyway.
    Prefixes are made by students trained on demonstrations alone.
    """
    V, W, T_max = places.weight.size, places.kappa.size, keys.shape[1] - 1
    R, n = demos.K.size, on_policy.K.size
    shown, spent_bc, prefix = np.zeros((R, W)), np.zeros((R, LEDGER)), np.empty((V, R))
    begin, total = np.empty(V), 0.0
    for v in range(V):
        total += places.start[v]
        begin[v] = total
    # A plain 0 or 1 would be a type of its own, and compiled once more.
    buy(places, play, demos, np.int64(0), R, begin, np.int64(1), keys[DEMO], shown, spent_bc)
    for r in range(R):
        for w in range(W):
            shown[r, w] += owned[0, w]
    master(places, shown, prefix)
    contexts = switches(places, prefix, T_max)
    labels, spent_op = np.zeros((n, W)), np.zeros((n, LEDGER))
    learnt, clean = np.empty((V, n + 2)), np.zeros((V, n + 2))
    low: Index = np.int64(0)
    while low < n:
        law, share, high = on_policy.law[low], on_policy.share[low], low + 1
        while high < n and on_policy.law[high] == law and on_policy.share[high] == share:
            high += 1
        found = contexts[law, share]
        buy(places, play, on_policy, low, high, found, T_max, keys[CONTINUE], labels, spent_op)
        for o in range(low, high):
            if on_policy.success_only[o] == 1:
                for v in range(V):
                    w = places.unit[v]
                    whole = labels[o, w] + shown[share, w] + owned[1, w]
                    clean[v, o] = play.skill * labels[o, w] / max(whole, 1.0)
            for w in range(W):
                labels[o, w] += shown[share, w] + owned[1, w]
        low = high
    master(places, labels, learnt)
    for v in range(V):
        learnt[v, n], learnt[v, n + 1] = 0.0, 1.0
    return values(places, learnt, clean, T_max), spent_bc, spent_op


@compiled
def buy(
    places: Places,
    play: Play,
    wishes: Wishes,
    low: Index,
    high: Index,
    contexts: Float64,
    last: Index,
    keys: np.ndarray,
    labels: Float64,
    ledger: Float64,
) -> None:
    """Let the teacher continue contexts until each wish low .. high - 1 has spent its budget.

    contexts: running sums; entry (last - t) * V + v is node v before turn t. labels [O, W] and ledger
    [O, LEDGER] are filled, each context standing for `times`.
    """
    V, T_max = places.weight.size, keys.size - 1
    nodes, left = np.empty(T_max, np.int64), wishes.budget.copy()
    accepted = contexts[-1]
    for episode in range(int(play.most * min(accepted, 1.0))):
        deepest = 0
        for o in range(low, high):
            if left[o] > 0.0:
                deepest = max(deepest, T_max if wishes.success_only[o] else wishes.K[o])
        if deepest == 0:
            break
        u = np.float64(entry(keys[0], np.uint64(episode)) >> np.uint64(11)) * 2.0**-53
        at = passed(contexts, u * accepted)
        L, end = teach(places, at % V, int(last) - at // V, deepest, keys, episode, nodes)
        for o in range(low, high):
            if left[o] > 0.0:
                whole = wishes.success_only[o] == 1
                played = L if whole else min(L, wishes.K[o])
                kept = 0 if whole and end != V else wishes.K[o]
                left[o] = pay(places, play, nodes, played, kept, left[o], labels[o], ledger[o])
                ledger[o, PROPOSALS] = (episode + 1) * play.times / accepted
    for o in range(low, high):
        ledger[o, UNSPENT] = left[o]


@compiled
def pay(
    places: Places,
    play: Play,
    nodes: Int64,
    played: int,
    kept: int,
    left: float,
    labels: Float64,
    ledger: Float64,
) -> float:
    """Pay for the turns played and label the first `kept` of them, up to what is left: what is left then."""
    ledger[CONTEXTS] += play.times
    for j in range(played):
        cost = places.tokens[nodes[j]] * play.times
        charged = cost if j < kept or not play.by_training else 0.0
        if charged > left:
            return 0.0
        left -= charged
        ledger[BOUGHT] += cost
        if j < kept:
            ledger[TRAINED] += cost
            labels[places.unit[nodes[j]]] += play.times
    return left


@compiled
def master(places: Places, labels: Float64, learnt: Float64) -> None:
    """Fill [V, O] with the chance of moving as the teacher after labels [O, W]: n / (n + kappa)."""
    for v in range(places.weight.size):
        w = places.unit[v]
        for o in range(labels.shape[0]):
            learnt[v, o] = labels[o, w] / (labels[o, w] + places.kappa[w])
