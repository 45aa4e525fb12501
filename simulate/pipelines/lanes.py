"""The lanes of a sweep: one row a pipeline, as plain arrays that one compiled program reads.

A lane is (recipe, K, r, budget, seed). Lanes that share demonstrations (same tokens for D_BC, same seed)
share their first student, which is trained once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
    order: Order = field(repr=False, compare=False)

    @property
    def first(self) -> tuple[int, int]:
        """What its first student depends on."""
        return self.seed, self.order.demos


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

    Pure BC has no D_OP, so it appears once a budget and seed, with r = 0. A value that is given twice counts
    once: two equal pipelines would halve the variance of their mean.
    """
    recipes, budgets, r = list(dict.fromkeys(recipes)), list(dict.fromkeys(budgets)), list(dict.fromkeys(r))
    for budget in budgets:
        for share in r:
            for recipe in recipes:
                check(world, recipe, budget=budget, r=share, axis=axis, rounds=rounds, seeds=seeds, seed=0)
    shares = {recipe: [0.0] if recipe.rho == "teacher" else list(r) for recipe in recipes}
    return [
        Pipeline(recipe, share, budget, seed, order(recipe, budget=budget, r=share, axis=axis))
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


def lanes_of(pipelines: Sequence[Pipeline], *, seed: int, horizon: int, distinct: int) -> Lanes:
    """Arrays for the program; `distinct` is the padded number of first students."""
    keys = {p.seed: pipeline_keys(seed, p.seed, horizon) for p in pipelines}
    lanes: dict[tuple[int, int], int] = {}
    for lane, p in enumerate(pipelines):
        lanes.setdefault(p.first, lane)
    rows = {first: row for row, first in enumerate(lanes)}
    return Lanes(
        order=Order(*(np.array(column) for column in zip(*(p.order for p in pipelines), strict=True))),
        keys=np.stack([keys[p.seed] for p in pipelines]),
        first=np.array([rows[p.first] for p in pipelines]),
        distinct=np.pad(list(lanes.values()), (0, distinct - len(lanes))),
    )


def chunks(pipelines: Sequence[Pipeline], size: int) -> Iterator[tuple[list[Pipeline], int]]:
    """Chunks of `size` lanes and how many of them are real; the last one is padded with its first lane."""
    for begin in range(0, len(pipelines), size):
        part = pipelines[begin : begin + size]
        yield [*part, *[part[0]] * (size - len(part))], len(part)
