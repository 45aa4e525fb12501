"""The lanes of a sweep: one row a pipeline, as plain arrays that one compiled program reads.

A lane is (recipe, K, r, budget, seed). Lanes that share demonstrations (same tokens for D_BC, same seed)
share their first student, which is trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from occupancy import Recipe
from simulate.pipelines import codes
from simulate.pipelines.outcome import check, pipeline_keys
from simulate.worlds.types import Float64, Int64, World


class Lanes(NamedTuple):
    """Arrays [P] unless said otherwise."""

    keys: np.ndarray
    """[P, STREAMS, T + 1] keys of the draws."""
    on_policy: Int64
    """Teacher tokens for D_OP."""
    demos: Int64
    """Teacher tokens for D_BC."""
    by_training: np.ndarray
    K: Int64
    psi: Int64
    law: Int64
    success_only: np.ndarray
    n: Int64
    repetition: Int64
    nu: Float64
    """[P, T] running sum of nu."""
    first: Int64
    """Row of the lane's first student among the distinct ones; see `distinct`."""
    distinct: Int64
    """[Q] a lane for each distinct first student; padded by repeating the first."""


@dataclass(frozen=True)
class Pipeline:
    """What one lane plays."""

    recipe: Recipe
    r: float
    budget: int
    seed: int
    """Number of the pipeline's stream of draws."""


def grid(
    world: World,
    *,
    recipes: Sequence[Recipe],
    budgets: Sequence[int],
    r: Sequence[float],
    seeds: int,
    axis: str,
    rounds: int,
) -> list[Pipeline]:
    """Every recipe at every budget, r and seed, lanes of one budget and seed side by side.

    Pure BC has no D_OP, so it appears once a budget and seed, with r = 0.
    """
    for budget in budgets:
        for share in r:
            for recipe in recipes:
                check(world, recipe, budget=budget, r=share, axis=axis, rounds=rounds, seeds=seeds, seed=0)
    shares = {recipe: [0.0] if recipe.rho == "teacher" else list(r) for recipe in recipes}
    return [
        Pipeline(recipe, share, budget, seed)
        for budget in budgets
        for seed in range(seeds)
        for recipe in recipes
        for share in shares[recipe]
    ]


def with_K(recipes: Sequence[Recipe], K: Sequence[float]) -> list[Recipe]:
    """Each recipe at every K that it allows: one whose filter needs the end of the episode, or whose teacher
    plays one turn, keeps its own."""
    out: list[Recipe] = []
    for recipe in recipes:
        fixed = recipe.phi == "success" or recipe.rho == "teacher" or recipe.switch.law == "teacher"
        out += [recipe] if fixed else [replace(recipe, K=k) for k in K]
    return list(dict.fromkeys(out))


def lanes_of(pipelines: Sequence[Pipeline], *, seed: int, axis: str, horizon: int, distinct: int) -> Lanes:
    """Arrays for the program; `distinct` is the padded number of first students."""
    tokens = [round(p.budget * p.r) if p.recipe.rho != "teacher" else 0 for p in pipelines]
    keys = {p.seed: pipeline_keys(seed, p.seed, horizon) for p in pipelines}
    nu = np.ones((len(pipelines), horizon))
    for row, p in enumerate(pipelines):
        given = p.recipe.switch.nu or [1.0 / horizon] * horizon
        nu[row, : len(given)] = np.cumsum(given)
    groups: dict[tuple[int, int], int] = {}
    first = [
        groups.setdefault((p.seed, p.budget - t), len(groups)) for p, t in zip(pipelines, tokens, strict=True)
    ]
    representative = np.zeros(distinct, np.int64)
    for lane, group in reversed(list(enumerate(first))):
        representative[group] = lane
    recipes = [p.recipe for p in pipelines]
    return Lanes(
        keys=np.stack([keys[p.seed] for p in pipelines]),
        on_policy=np.array(tokens, np.int64),
        demos=np.array([p.budget for p in pipelines], np.int64) - np.array(tokens, np.int64),
        by_training=np.full(len(pipelines), axis == "training"),
        K=np.array([r.cap(1) for r in recipes], np.int64),
        psi=np.array([codes.PSI[r.psi] for r in recipes], np.int64),
        law=np.array([codes.LAW[r.switch.law] for r in recipes], np.int64),
        success_only=np.array([r.phi == "success" for r in recipes]),
        n=np.array([r.n for r in recipes], np.int64),
        repetition=np.array([r.repetition for r in recipes], np.int64),
        nu=nu,
        first=np.array(first, np.int64),
        distinct=representative,
    )


def distinct_students(pipelines: Sequence[Pipeline]) -> int:
    """Number of distinct (seed, tokens for D_BC)."""
    return len(
        {(p.seed, p.budget - (round(p.budget * p.r) if p.recipe.rho != "teacher" else 0)) for p in pipelines}
    )


def chunks(pipelines: Sequence[Pipeline], size: int) -> Iterator[tuple[list[Pipeline], int]]:
    """Chunks of `size` lanes and how many of them are real; the last one is padded with its first lane."""
    for begin in range(0, len(pipelines), size):
        part = list(pipelines[begin : begin + size])
        real = len(part)
        yield part + [part[0]] * (size - real), real
