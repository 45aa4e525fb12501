"""Serial numba kernels of Algorithm 1 in an imagined world: what a recipe and its budget would teach.

A draw is keyed by (draw, stream, turn, episode), so recipes differ by what they do and not by their luck.
"""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from occupancy.compiled import compiled
from simulate.codes import CONTINUE, DEMO, FIXED, ROLLOUT, SWITCH, WITHOUT_SUCCESS
from simulate.draws import entry
from simulate.types import Float64, Int32, Int64

_LOW, _HALF, _UNIT = np.uint64(0xFFFF_FFFF), np.uint64(32), 2.0**-32
_FRESH = np.uint64(1 << 40)
"""Offset of the draws that choose a node within a class, from those that choose the move."""

PROPOSALS, CONTEXTS, DEMOS, BOUGHT_BC, BOUGHT_OP, TRAINED_OP, UNSPENT = range(7)
LEDGER = 7
"""Columns of an outcome's ledger: proposals, continuations, demonstrations, teacher tokens, what was left."""


class Places(NamedTuple):
    """An imagined world: V nodes sorted by class, X classes, U moves from each node."""

    start: Float64
    """[V] running sum of the start law."""
    to: Int32
    """[V, U] where a move leads: node v < V, V + x for any node of class x, V + X success,
    V + X + 1 failure."""
    student: Float64
    """[V, U] running sums of the student's law over moves."""
    teacher: Float64
    """[V, U] running sums of the teacher's."""
    first: Int64
    """[X + 1] the nodes of class x are first[x] .. first[x + 1] - 1."""
    within: Float64
    """[V] running sums, within its class, of how often a node comes."""
    tokens: Float64
    """[V] output tokens of a teacher turn."""
    unit: Int64
    """[V] the context that a policy reads there: what is learnt at a node is learnt at all of its unit."""
    kappa: Float64
    """[W] labels after which half of a unit is learnt."""


class Wishes(NamedTuple):
    """O recipes to be bought after the same demonstrations."""

    demos: float
    """Teacher tokens for demonstrations."""
    law: Int64
    """[O] codes of `simulate.codes`."""
    psi: Int64
    """[O]"""
    success_only: Int64
    """[O] 0 or 1."""
    K: Int64
    """[O]"""
    on_policy: Float64
    """[O] teacher tokens for each."""
    by_training: bool
    """The recipe is charged for accepted tokens only."""
    times: float
    """Episodes that a played one stands for."""
    most: int
    """Proposals after which a filter accepts too little."""


class Bank(NamedTuple):
    """Rollouts of one student, played when first asked for; `most` of them at most."""

    played: Int64
    """[1] how many so far."""
    node: Int64
    """[2, most] node before the turn t' ~ Unif{1..T} and t' ~ Unif{1..T_max}."""
    turn: Int64
    """[2, most] that turn; 0 where it is beyond the end."""
    won: Int64
    """[most] 0 or 1."""


@compiled
def node_at(places: Places, code: int, bits: np.uint64) -> int:
    """The node that a move leads to; V and V + 1 are success and failure."""
    V, X = places.within.size, places.first.size - 1
    if code < V:
        return code
    if code >= V + X:
        return code - X
    low, high = places.first[code - V], places.first[code - V + 1]
    u = np.float64(bits >> np.uint64(11)) * 2.0**-53
    at = int(np.searchsorted(places.within[low:high], u, side="right"))
    return int(min(low + at, high - 1))


@compiled
def move(places: Places, v: int, learnt: float, key: np.uint64, episode: int) -> int:
    """One turn from node v by a policy that moves as the teacher with chance `learnt`."""
    bits = entry(key, np.uint64(episode))
    law = places.teacher if np.float64(bits & _LOW) * _UNIT < learnt else places.student
    u = np.float64(bits >> _HALF) * _UNIT
    at, last = 0, law.shape[1] - 1
    while at < last and law[v, at] <= u:
        at += 1
    code = int(places.to[v, at])
    V = places.within.size
    if code < V:
        return code
    return node_at(places, code, entry(key, np.uint64(episode) + _FRESH))


@compiled
def teach(
    places: Places, v: int, t: int, K: int, keys: np.ndarray, stream: int, episode: int, nodes: Int64
) -> tuple[int, int]:
    """Let the teacher play from node v at turn t, K turns at most: their number and the last node."""
    V, T, L = places.within.size, keys.shape[1] - 1, 0
    while v < V and K > L and t + L <= T:
        nodes[L] = v
        v = move(places, v, 1.0, keys[stream, t + L], episode)
        L += 1
    return L, v


@compiled
def begin(places: Places, keys: np.ndarray, stream: int, episode: int) -> int:
    """The node that an episode starts at."""
    u = np.float64(entry(keys[stream, 0], np.uint64(episode)) >> np.uint64(11)) * 2.0**-53
    return min(int(np.searchsorted(places.start, u, side="right")), places.start.size - 1)


@compiled
def learn(places: Places, labels: Float64, learnt: Float64) -> None:
    """[V] chance of moving as the teacher: n / (n + kappa)."""
    for v in range(learnt.size):
        w = places.unit[v]
        learnt[v] = labels[w] / (labels[w] + places.kappa[w])


@compiled
def add(
    places: Places, nodes: Int64, L: int, left: float, times: float, labels: Float64
) -> tuple[int, float]:
    """Label the first turns whose tokens fit in what is left: their number and tokens."""
    spent = 0.0
    for j in range(L):
        cost = places.tokens[nodes[j]] * times
        if spent + cost > left:
            return j, spent
        spent += cost
        labels[places.unit[nodes[j]]] += times
    return L, spent


@compiled
def roll(places: Places, learnt: Float64, keys: np.ndarray, bank: Bank, episode: int) -> None:
    """Play the bank's rollouts up to number `episode`."""
    V, T_max = places.within.size, keys.shape[1] - 1
    path = np.empty(T_max, np.int64)
    while bank.played[0] <= episode:
        k = bank.played[0]
        v, T = begin(places, keys, ROLLOUT, k), 0
        while v < V and T_max > T:
            path[T] = v
            v = move(places, v, learnt[v], keys[ROLLOUT, T + 1], k)
            T += 1
        u = np.float64(entry(keys[SWITCH, 0], np.uint64(k)) >> np.uint64(11)) * 2.0**-53
        for law, most in enumerate((T, T_max)):
            t = 1 + int(u * most)
            bank.turn[law, k] = t if t <= T else 0
            bank.node[law, k] = path[min(t, T) - 1]
        bank.won[k] = v == V
        bank.played[0] = k + 1


@compiled
def outcomes(
    places: Places,
    wishes: Wishes,
    keys: np.ndarray,
    demo_labels: Float64,
    labels: Float64,
    J: Float64,
    ledger: Float64,
) -> None:
    """pass@1 [O] of the students that are trained on what each wish buys, and its ledger [O, LEDGER].

    demo_labels (changed), labels: [W] what they are trained on anyway, by demonstrations and continuations.
    A wish that `most` proposals cannot fill is left at that.
    """
    V, T_max = places.within.size, keys.shape[1] - 1
    nodes, learnt, prefix = np.empty(T_max, np.int64), np.empty(V), np.empty(V)
    shown, spent_bc, episode = 0.0, 0.0, 0
    while spent_bc < wishes.demos:
        L, _ = teach(places, begin(places, keys, DEMO, episode), 1, T_max, keys, DEMO, episode, nodes)
        kept, spent = add(places, nodes, L, wishes.demos - spent_bc, wishes.times, demo_labels)
        spent_bc += spent
        shown += wishes.times
        episode += 1
        if kept < L:
            break
    learn(places, demo_labels, prefix)
    bank = Bank(
        np.zeros(1, np.int64),
        np.empty((2, wishes.most), np.int64),
        np.empty((2, wishes.most), np.int64),
        np.empty(wishes.most, np.int64),
    )
    for o in range(J.size):
        ledger[o, DEMOS], ledger[o, BOUGHT_BC] = shown, spent_bc
        own = labels + demo_labels
        collect(places, wishes, o, keys, prefix, bank, nodes, own, ledger[o])
        learn(places, own, learnt)
        J[o] = value(places, learnt, T_max)


@compiled
def collect(
    places: Places,
    wishes: Wishes,
    o: int,
    keys: np.ndarray,
    prefix: Float64,
    bank: Bank,
    nodes: Int64,
    labels: Float64,
    ledger: Float64,
) -> None:
    """Buy continuations by wish number o until its tokens are spent; labels [W] and ledger are filled."""
    V = places.within.size
    charged, episode, budget = 0.0, 0, wishes.on_policy[o]
    law = 1 if wishes.law[o] == FIXED else 0
    while charged < budget and episode < wishes.most:
        roll(places, prefix, keys, bank, episode)
        k, t = episode, bank.turn[law, episode]
        episode += 1
        if t == 0 or (wishes.psi[o] == WITHOUT_SUCCESS and bank.won[k]):
            continue
        ledger[CONTEXTS] += wishes.times
        L, end = teach(places, bank.node[law, k], t, wishes.K[o], keys, CONTINUE, k, nodes)
        left = budget - charged
        if wishes.success_only[o] and end != V:
            whole = 0.0
            for j in range(L):
                whole += places.tokens[nodes[j]] * wishes.times
            ledger[BOUGHT_OP] += whole if wishes.by_training else min(whole, left)
            charged += 0.0 if wishes.by_training else whole
            continue
        kept, spent = add(places, nodes, L, left, wishes.times, labels)
        ledger[TRAINED_OP] += spent
        ledger[BOUGHT_OP] += spent
        charged += spent if kept == L else left
    ledger[PROPOSALS] = episode * wishes.times
    ledger[UNSPENT] = max(budget - charged, 0.0)


@compiled
def value(places: Places, learnt: Float64, T_max: int) -> float:
    """pass@1 by dynamic programming, of a policy that moves as the teacher with chance learnt [V]."""
    V, X = places.within.size, places.first.size - 1
    U = places.to.shape[1]
    law, used = np.empty((V, U)), np.empty(V, np.int64)
    for v in range(V):
        before_s, before_e = 0.0, 0.0
        for m in range(U):
            s, e = places.student[v, m], places.teacher[v, m]
            law[v, m] = (1.0 - learnt[v]) * (s - before_s) + learnt[v] * (e - before_e)
            before_s, before_e = s, e
            if law[v, m] > 0.0:
                used[v] = m + 1
    # Beyond the nodes: the mean value of each class, then success and failure.
    now, after = np.zeros(V + X + 2), np.zeros(V + X + 2)
    now[V + X] = after[V + X] = 1.0
    for _ in range(T_max):
        for v in range(V):
            total = 0.0
            for m in range(used[v]):
                total += law[v, m] * after[places.to[v, m]]
            now[v] = total
        for x in range(X):
            total, before = 0.0, 0.0
            for v in range(places.first[x], places.first[x + 1]):
                total += (places.within[v] - before) * now[v]
                before = places.within[v]
            now[V + x] = total
        now, after = after, now
    total, before = 0.0, 0.0
    for v in range(V):
        total += (places.start[v] - before) * after[v]
        before = places.start[v]
    return total
