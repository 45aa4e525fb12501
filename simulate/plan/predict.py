"""pass@1 of every recipe and share r at a budget, from the class chain, coverage and a learning curve.

A share 1 - r of the budget buys demonstrations; the student trained on them makes the prefixes; the rest
buys N continuations; each class then has so many labelled turns, so much of it is learnt, and the chain
says what the student does. The ends are pinned to what was measured: nothing learnt is the student's own
J, all learnt is the teacher's.

Axes: D draws (the first is the pilot itself), O options, X classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulate.plan import chain
from simulate.plan.model import Model
from simulate.plan.pilot import Floats


@dataclass(frozen=True)
class Option:
    """What could be bought."""

    recipe: str
    K: float
    r: float
    """Share of the budget that goes to the recipe; the rest buys demonstrations."""


@dataclass(frozen=True)
class Predictions:
    """What each option would bring."""

    J: Floats
    """[D, O] pass@1."""
    contexts: Floats
    """[O] continuations bought."""
    demos: Floats
    """[O] demonstrations bought."""
    tokens: Floats
    """[O] teacher tokens bought (C_i)."""
    trained: Floats
    """[O] teacher tokens in accepted traces (C_tr)."""
    gap: tuple[float, float]
    """Chain minus measurement at the two ends, before they are pinned."""


@dataclass(frozen=True)
class _Bought:
    J: Floats
    contexts: float
    tokens: float
    trained: float


def predict(model: Model, options: Sequence[Option], *, budget: float) -> Predictions:
    """Predict every option; budget in the axis that the model's prices are in."""
    nothing = np.zeros_like(model.demo)
    at_0, at_1 = model.J(nothing), model.J(nothing + 1.0)
    found: dict[Option, _Bought] = {}
    for r in sorted({option.r for option in options}):
        labels = ((1 - r) * budget / model.demo_price)[:, None] * model.demo
        prefix = model.learnt(labels) if r < 1 else nothing
        for option in (option for option in options if option.r == r):
            found[option] = _one(model, option, labels=labels, prefix=prefix, budget=budget)
    rows = [found[option] for option in options]
    stretch = (model.teacher - model.student) / np.maximum(at_1 - at_0, 1e-6)
    pinned = (
        model.student[:, None] + (np.stack([row.J for row in rows], 1) - at_0[:, None]) * stretch[:, None]
    )
    return Predictions(
        J=np.clip(pinned, 0.0, 1.0),
        contexts=np.array([row.contexts for row in rows]),
        demos=np.array([(1 - option.r) * budget / model.demo_price[0] for option in options]),
        tokens=np.array([row.tokens for row in rows]),
        trained=np.array([row.trained for row in rows]),
        gap=(float(at_0[0] - model.student[0]), float(at_1[0] - model.teacher[0])),
    )


def _one(model: Model, option: Option, *, labels: Floats, prefix: Floats, budget: float) -> _Bought:
    """One option, given the demonstrations' labels [D, X] and what the prefix's student has learnt."""
    demo_tokens = float(((1 - option.r) * budget / model.demo_price * model.demo_tokens)[0])
    if option.recipe == "pure-bc":
        return _Bought(model.J(model.learnt(labels)), 0.0, demo_tokens, demo_tokens)
    k = model.kernels
    kernel, wins = k.mixed(prefix)
    switch = chain.contexts(
        k.start,
        kernel,
        wins,
        T_max=k.T_max,
        law="fixed" if option.recipe == "oec" else "uniform",
        failed_only=option.recipe == "op-critical",
    )
    switch = switch / np.maximum(switch.sum(1, keepdims=True), 1e-12)
    depth = int(min(option.K, k.T_max))
    at = model.depths.index(depth)
    turns = chain.exposure(switch, k.teacher, depths=[depth])[0]
    accepted = turns
    if option.recipe != "op-short":
        accepted = turns * chain.success_from(k.teacher, k.teacher_wins, T_max=k.T_max)
    modelled = np.maximum((turns * model.tokens).sum(1), 1e-12)
    tokens = modelled * model.scale[:, at]
    kept = (accepted * model.tokens).sum(1) / modelled
    n = option.r * budget / (tokens * model.price[:, at])
    return _Bought(
        J=model.J(model.learnt(labels + n[:, None] * accepted)),
        contexts=float(n[0]),
        tokens=demo_tokens + float((n * tokens)[0]),
        trained=demo_tokens + float((n * tokens * kept)[0]),
    )
