"""Data sets of every arm that are cut from traces already paid for, and the students trained on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.planner_prior.stored import INF

Key = tuple[str, int, float]
"""(recipe, K, r); whole continuations have `stored.INF` for K."""


@dataclass(frozen=True)
class Trace:
    """One teacher trace.

    Attributes:
        moves: [L] flat indices context * A + action.
        tokens: [L] teacher tokens.
        won: whether the episode that the trace ends succeeded.
        parent_won, parent_turns: success and length of the rollout that it continues; False and 0 for a
            demonstration.
    """

    moves: np.ndarray
    tokens: np.ndarray
    won: bool
    parent_won: bool
    parent_turns: int


@dataclass(frozen=True)
class Pool:
    """What cuts are made of."""

    demonstrations: tuple[Trace, ...]
    continuations: tuple[Trace, ...]

    def __add__(self, other: Pool) -> Pool:
        return Pool(self.demonstrations + other.demonstrations, self.continuations + other.continuations)


def pool_of(pilot: Any) -> Pool:
    """Demonstrations and whole continuations of a pilot, or of a purchase in its form."""
    world, found = pilot.world, {"demo": [], "continuation": []}
    for episode in pilot.episodes:
        if episode["kind"] in found:
            parent = episode["parent"]
            found[episode["kind"]].append(
                Trace(
                    world.ctx[episode["s"]] * world.A + episode["a"],
                    world.tokens[episode["s"]],
                    episode["end"] == world.S,
                    bool(parent) and parent["end"] == world.S,
                    len(parent["s"]) if parent else 0,
                )
            )
    return Pool(tuple(found["demo"]), tuple(found["continuation"]))


def student(base: Any, world: Any, counts: np.ndarray) -> np.ndarray:
    """[X, A] the student trained on counts [X, A] of teacher turns.

    It is the file's own `fit` in single precision and with actions first, which takes half the time.
    """
    n = float(counts.sum())
    if n < 1:
        return np.asarray(base.softmax(world.base))
    rows = np.flatnonzero(counts.sum(1))
    phi = np.ascontiguousarray(world.phi[rows], np.float32)
    phi_T = np.ascontiguousarray(phi.T)
    share = np.ascontiguousarray(counts[rows].T / n, np.float32)
    before = np.ascontiguousarray(world.base[rows].T, np.float32)
    mass = share.sum(0)
    W = np.zeros((counts.shape[1], phi.shape[1]), np.float32)
    V = np.zeros_like(W)
    decay, rate = np.float32(world.lam / n), np.float32(world.rate)
    for _ in range(int(np.clip(world.epochs * n / world.batch, 30, 160))):
        P = W @ phi_T
        P += before
        P -= P.max(0)
        np.exp(P, out=P)
        P *= mass / P.sum(0)
        P -= share
        V *= np.float32(0.9)
        V -= rate * (P @ phi + decay * W)
        W += V
    return np.asarray(base.softmax(world.base + world.phi @ W.T.astype(float)))


def cut(
    J: Callable[[np.ndarray], float],
    shape: tuple[int, int],
    pool: Pool,
    arm: Key,
    size: float,
    *,
    price: float,
    seed: list[int],
) -> dict[str, Any]:
    """The run that an arm at `size` pilot costs would have been, and the exact pass@1 of its student.

    Args:
        J: exact pass@1 of a student trained on counts [X, A] of teacher turns.
        shape: (X, A).
        pool: traces to cut from.
        arm: what to buy; `pilot` and `pilot-success` take the whole pool.
        size: teacher tokens in units of `price`.
        price: teacher tokens of the pilot.
        seed: of the order of traces.
    """
    rng = np.random.default_rng(seed)
    recipe, K, r = arm
    counts = np.zeros(shape[0] * shape[1])
    spent, kept, taken = [0.0, 0.0], 0.0, [0, 0]
    every = recipe in ("pilot", "pilot-success")
    limits = (np.inf, np.inf) if every else ((1 - r) * size * price, r * size * price)
    tails = pool.continuations
    if recipe in ("op-critical", "op-failed"):
        tails = tuple(trace for trace in tails if not trace.parent_won)
    order = rng.permutation(len(tails))
    if recipe == "oec" and tails:
        turns = np.array([trace.parent_turns for trace in tails])
        order = np.argsort(rng.exponential(size=len(tails)) / turns)
    shown = [pool.demonstrations[k] for k in rng.permutation(len(pool.demonstrations))]
    only_won = (
        recipe in ("pilot-success", "bc-success"),
        recipe in ("op-success", "op-critical", "oec", "pilot-success"),
    )
    for part, traces, depth in ((0, shown, INF), (1, [tails[k] for k in order], K)):
        for trace in traces:
            cost = trace.tokens[:depth].sum()
            if spent[part] + cost > limits[part]:
                break
            spent[part] += cost
            taken[part] += 1
            if not only_won[part] or trace.won:
                np.add.at(counts, trace.moves[:depth], 1.0)
                kept += cost
    return {
        "arm": arm,
        "size": size,
        "seed": seed[-1],
        "demo": spent[0] / price,
        "op": spent[1] / price,
        "kept": kept / price,
        "n": taken,
        "J": J(counts.reshape(shape)),
        "full": bool(every or spent[0] + spent[1] > 0.85 * size * price),
    }


def purchase(base: Any, world: Any, share: int, seed: int) -> Any:
    """Demonstrations and whole continuations, `share` times as many as a pilot has; no hand-backs."""
    saved, known = (base.TASKS, base.DEMOS, base.HANDBACK), dict(world.facts)
    base.TASKS, base.DEMOS, base.HANDBACK = 60 * share, 40 * share, ()
    try:
        return base.Pilot(world, seed)
    finally:
        base.TASKS, base.DEMOS, base.HANDBACK = saved
        world.facts = known
