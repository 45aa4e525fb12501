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
from simulate.pipelines.order import Order, order
from simulate.pipelines.outcome import check, pipeline_keys
from simulate.worlds.types import Int64, World


class Lanes(NamedTuple):
    """What all lanes P play."""

    order: Order
    """Arrays [P]; nu is [P, T]."""
    keys: np.ndarray
    """[P, STREAMS, T + 1] keys of the draws."""
    first: Int64
    """[P] row of the lane's first student among the distinct ones; see `distinct`."""
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


def orders_of(pipelines: Sequence[Pipeline], axis: str) -> list[Order]:
    """The order of each pipeline."""
    return [order(p.recipe, budget=p.budget, r=p.r, axis=axis) for p in pipelines]


def distinct_students(pipelines: Sequence[Pipeline], axis: str) -> int:
    """Number of distinct (seed, tokens for D_BC)."""
    return len({(p.seed, o.demos) for p, o in zip(pipelines, orders_of(pipelines, axis), strict=True)})


def lanes_of(pipelines: Sequence[Pipeline], *, seed: int, axis: str, horizon: int, distinct: int) -> Lanes:
    """Arrays for the program; `distinct` is the padded number of first students."""
    orders = orders_of(pipelines, axis)
    keys = {p.seed: pipeline_keys(seed, p.seed, horizon) for p in pipelines}
    groups: dict[tuple[int, int], int] = {}
    first = [
        groups.setdefault((p.seed, o.demos), len(groups)) for p, o in zip(pipelines, orders, strict=True)
    ]
    representative = np.zeros(distinct, np.int64)
    for lane, group in reversed(list(enumerate(first))):
        representative[group] = lane
    return Lanes(
        order=Order(*(np.array(column) for column in zip(*orders, strict=True))),
        keys=np.stack([keys[p.seed] for p in pipelines]),
        first=np.array(first, np.int64),
        distinct=representative,
    )


def chunks(pipelines: Sequence[Pipeline], size: int) -> Iterator[tuple[list[Pipeline], int]]:
    """Chunks of `size` lanes and how many of them are real; the last one is padded with its first lane."""
    for begin in range(0, len(pipelines), size):
        part = list(pipelines[begin : begin + size])
        real = len(part)
        yield part + [part[0]] * (size - real), real
