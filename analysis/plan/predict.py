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

from analysis.plan.coverage import laws
from analysis.plan.imagined import Imagined, imagine
from analysis.plan.imagined_exact import FAILED, FIXED, UNIFORM
from analysis.plan.imagined_purchases import (
    BOUGHT,
    CONTEXTS,
    PROPOSALS,
    TRAINED,
    UNSPENT,
    Play,
    Wishes,
    outcomes,
)
from analysis.plan.model import Model
from analysis.plan.pilot import Floats, Ints
from occupancy.record.recipe import Recipe, preset
from simulate.pipelines.outcome import pipeline_keys

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
    shares, share = np.unique([option.r for option in options], return_inverse=True)
    column = _columns(model, recipes)
    play = partial(
        _draw,
        model,
        wishes=_wishes(recipes, share),
        column=column,
        shares=shares,
        spending=spending,
        seed=seed,
    )
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        J, shown, bought = map(np.stack, zip(*pool.map(play, range(len(model.kappa))), strict=True))
    J, ends = J[:, :-2], J[:, -2:]
    width = ends[:, 1] - ends[:, 0]
    # A draw whose ends are nearly the same says little about where between them a student is.
    stretch = (model.teacher - model.student) / np.maximum(width, max(float(width.mean()) / 2, 1e-3))
    pinned = model.student[:, None] + (J - ends[:, :1]) * stretch[:, None]
    shown, mean = (part.mean(0) * (asked / spending.budget) for part in (shown[:, share], bought))
    demos = shown[:, BOUGHT] * model.demo_scale[0]
    op = mean[:, [BOUGHT, TRAINED]].T * model.scale[0, column]
    # What earlier runs own is played like the rest, and is no purchase.
    new_demos = np.maximum(1 - spending.owned_demos / np.maximum(demos, 1e-9), 0.0)
    new_op = np.maximum(1 - spending.owned_on_policy / np.maximum(op[0], 1e-9), 0.0)
    return Predictions(
        J=np.clip(pinned, 0.0, 1.0),
        unspent=(bought[:, :, UNSPENT] > 0).mean(0),
        proposals=mean[:, PROPOSALS] * new_op,
        contexts=mean[:, CONTEXTS] * new_op,
        demos=shown[:, CONTEXTS] * new_demos,
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
    model: Model, draw: int, *, wishes: Wishes, column: Ints, shares: Floats, spending: Spending, seed: int
) -> tuple[Floats, Floats, Floats]:
    """What `outcomes` finds: pass@1 [O + 2], ledgers of each share [R, LEDGER] and each option [O, LEDGER].

    wishes: options, their budgets set to 1 where the recipe has continuations; column: [O] of their depths.
    Budgets are in tokens of the imagined world, which are the measured ones only on average.
    """
    T_max, budget, R = model.kernels.T_max, spending.budget, len(shares)
    world = world_of(model, draw, seed=seed)
    shown = (1 - shares) * budget / model.demo_price[draw] + spending.owned_demos
    shown = shown / model.demo_scale[draw]
    bought = shares[wishes.share] * budget / model.price[draw, column] + spending.owned_on_policy
    bought = wishes.budget * bought / model.scale[draw, column]
    turns = float((shown[wishes.share] + bought).max() / model.tokens[draw].mean())
    none = np.zeros(R, np.int64)
    skill = float(np.random.default_rng([seed, draw, 1]).random())  # nothing in a pilot tells it
    return outcomes(
        world.places,
        Play(max(1.0, turns / TURNS), MOST, spending.by_training, skill),
        Wishes(none, none, np.full(R, T_max), none, shown),
        wishes._replace(budget=bought),
        pipeline_keys(seed, draw, T_max),
        np.stack([world.demos, world.on_policy]),
    )


def _wishes(recipes: Sequence[Recipe], share: Ints) -> Wishes:
    return Wishes(
        law=np.array([_law(recipe) for recipe in recipes]),
        share=share,
        K=np.array([recipe.cap(1) for recipe in recipes]),
        success_only=np.array([recipe.phi == "success" for recipe in recipes], np.int64),
        budget=np.array([float(recipe.rho != "teacher") for recipe in recipes]),
    )


def _law(recipe: Recipe) -> int:
    if recipe.switch.law == "fixed":
        return FIXED
    return FAILED if recipe.psi == "without_success" else UNIFORM


def _recipe(option: Option, *, T_max: int) -> Recipe:
    return preset(option.recipe, T_max=T_max, **({"K": option.K} if option.recipe == "op-short" else {}))


def _columns(model: Model, recipes: Sequence[Recipe]) -> Ints:
    return np.array([model.depths.index(recipe.cap(1)) for recipe in recipes])
