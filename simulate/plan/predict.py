"""pass@1 of every recipe and share r at a budget, played in imagined worlds.

Each draw of the model is a world that could have left the pilot (`imagined`). In it a share 1 - r of the
budget buys demonstrations, the student trained on them makes the prefixes, the rest buys continuations,
and the student trained on all of it, the pilot's own traces included, is evaluated exactly. The ends are
pinned to what was measured: nothing learnt is the student's own J, all learnt the teacher's.

Axes: D draws (the first is the pilot itself), O options.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from occupancy.recipe import Recipe, preset
from simulate import codes
from simulate.outcome import pipeline_keys
from simulate.plan.coverage import laws
from simulate.plan.imagined import Imagined, imagine
from simulate.plan.imagined_kernels import (
    BOUGHT_BC,
    BOUGHT_OP,
    CONTEXTS,
    DEMOS,
    LEDGER,
    PROPOSALS,
    TRAINED_OP,
    UNSPENT,
    Wishes,
    outcomes,
    value,
)
from simulate.plan.model import Model
from simulate.plan.pilot import Floats

TURNS = 4000
"""Teacher turns that are played at most; in a larger purchase each episode played stands for more."""
LARGEST = 1e15
"""Budget on its axis that is played at most."""
MOST = 40_000
"""Proposals after which a filter accepts too little."""


@dataclass(frozen=True)
class Option:
    """What could be bought."""

    recipe: str
    K: float
    r: float
    """Share of the budget that goes to the recipe; the rest buys demonstrations."""


@dataclass(frozen=True)
class Spending:
    """A budget on an axis, and teacher tokens of earlier runs that are trained on too."""

    budget: float
    by_training: bool = False
    """Rejected tokens are free."""
    owned_demos: float = 0.0
    """Tokens of demonstrations beside the pilot's."""
    owned_on_policy: float = 0.0
    """Tokens of continuations beside the pilot's, counted as if the option's own recipe had bought them."""


@dataclass(frozen=True)
class Predictions:
    """What each option would bring; means over draws where no D is named."""

    J: Floats
    """[D, O] pass@1."""
    unspent: Floats
    """[O] share of draws in which filters accepted too little to spend the budget."""
    proposals: Floats
    """[O] rollouts of the student."""
    contexts: Floats
    """[O] continuations bought."""
    demos: Floats
    """[O] demonstrations bought."""
    tokens: Floats
    """[O] teacher tokens bought (C_i)."""
    trained: Floats
    """[O] teacher tokens in accepted traces (C_tr)."""
    gap: tuple[float, float]
    """Imagined minus measured pass@1 of student and teacher, before they are pinned."""


def predict(model: Model, options: Sequence[Option], *, spending: Spending, seed: int = 0) -> Predictions:
    """Play every option in every draw; the result does not depend on the number of threads."""
    # Beyond LARGEST everything that can be learnt is, and sums would overflow.
    asked, spending = spending.budget, replace(spending, budget=min(spending.budget, LARGEST))
    recipes = [_recipe(option, T_max=model.kernels.T_max) for option in options]
    bought = [(recipe, option.r) for recipe, option in zip(recipes, options, strict=True)]
    play = partial(_draw, model, bought, spending, seed)
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        J, ends, ledger = map(np.stack, zip(*pool.map(play, range(len(model.kappa))), strict=True))
    width = ends[:, 1] - ends[:, 0]
    # A draw whose ends are nearly the same says little about where between them a student is.
    stretch = (model.teacher - model.student) / np.maximum(width, max(float(width.mean()) / 2, 1e-3))
    pinned = model.student[:, None] + (J - ends[:, :1]) * stretch[:, None]
    mean = ledger.mean(0) * (asked / spending.budget)
    demos = mean[:, BOUGHT_BC] * model.demo_scale[0]
    op = mean[:, [BOUGHT_OP, TRAINED_OP]].T * [model.scale[0, _column(model, recipe)] for recipe in recipes]
    # What earlier runs own is played like the rest, and is no purchase.
    new_demos = np.maximum(1 - spending.owned_demos / np.maximum(demos, 1e-9), 0.0)
    new_op = np.maximum(1 - spending.owned_on_policy / np.maximum(op[0], 1e-9), 0.0)
    return Predictions(
        J=np.clip(pinned, 0.0, 1.0),
        unspent=(ledger[:, :, UNSPENT] > 0).mean(0),
        proposals=mean[:, PROPOSALS] * new_op,
        contexts=mean[:, CONTEXTS] * new_op,
        demos=mean[:, DEMOS] * new_demos,
        tokens=demos * new_demos + op[0] * new_op,
        trained=demos * new_demos + op[1] * new_op,
        gap=(float((ends[:, 0] - model.student).mean()), float((ends[:, 1] - model.teacher).mean())),
    )


def world_of(model: Model, draw: int, *, seed: int) -> Imagined:
    """The imagined world of one draw."""
    return imagine(
        model.ground,
        start=model.kernels.start[draw],
        kernels=model.kernels.of(draw),
        tokens=model.tokens[draw],
        laws=np.array(laws())[model.law[:, draw]],
        kappa=float(model.kappa[draw]),
        rng=np.random.default_rng([seed, draw]),
    )


def _draw(
    model: Model, bought: Sequence[tuple[Recipe, float]], spending: Spending, seed: int, draw: int
) -> tuple[Floats, Floats, Floats]:
    """J of each option [O], of a student that learnt nothing and everything [2], ledgers [O, LEDGER]."""
    world, T_max = world_of(model, draw, seed=seed), model.kernels.T_max
    keys = pipeline_keys(seed, draw, T_max)
    V = len(world.places.unit)
    ends = np.array([value(world.places, np.full(V, p), T_max) for p in (0.0, 1.0)])
    J, ledger = np.zeros(len(bought)), np.zeros((len(bought), LEDGER))
    for r in sorted({r for _, r in bought}):
        at = [i for i, (_, share) in enumerate(bought) if share == r]
        wishes = _wishes(model, [bought[i][0] for i in at], r, spending, draw)
        found, spent = np.zeros(len(at)), np.zeros((len(at), LEDGER))
        outcomes(world.places, wishes, keys, world.demos.copy(), world.on_policy, found, spent)
        J[at], ledger[at] = found, spent
    return J, ends, ledger


def _wishes(model: Model, recipes: Sequence[Recipe], r: float, spending: Spending, draw: int) -> Wishes:
    """Options in the tokens of the imagined world, which are the measured ones only on average."""
    at, budget = [_column(model, recipe) for recipe in recipes], spending.budget
    demos = ((1 - r) * budget / model.demo_price[draw] + spending.owned_demos) / model.demo_scale[draw]
    on_policy = r * budget / model.price[draw, at] + spending.owned_on_policy
    on_policy = on_policy / model.scale[draw, at] * [recipe.rho != "teacher" for recipe in recipes]
    turns = float((demos + on_policy.max()) / model.tokens[draw].mean())
    return Wishes(
        demos=float(demos),
        law=np.array([codes.LAW[recipe.switch.law] for recipe in recipes]),
        psi=np.array([codes.PSI[recipe.psi] for recipe in recipes]),
        success_only=np.array([recipe.phi == "success" for recipe in recipes], np.int64),
        K=np.array([recipe.cap(1) for recipe in recipes]),
        on_policy=on_policy,
        by_training=spending.by_training,
        times=max(1.0, turns / TURNS),
        most=MOST,
    )


def _recipe(option: Option, *, T_max: int) -> Recipe:
    return preset(option.recipe, T_max=T_max, **({"K": option.K} if option.recipe == "op-short" else {}))


def _column(model: Model, recipe: Recipe) -> int:
    return model.depths.index(recipe.cap(1))
