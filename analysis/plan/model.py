"""Everything of a pilot that a prediction needs, for each draw of the bootstrap over tasks.

Axes: D draws (the first is the pilot itself), X classes, M depths, Q tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.plan import chain
from analysis.plan.calibrate import Kappa, prior_of
from analysis.plan.classes import Classes
from analysis.plan.costs import costs_of_contexts, demo_cost
from analysis.plan.coverage import law_posterior
from analysis.plan.imagined import Ground, survey
from analysis.plan.pilot import Floats, Ints, Pilot, by_cluster


@dataclass(frozen=True)
class Model:
    """Kernels, coverage, prices and measured ends; see `build`."""

    ground: Ground
    kernels: chain.Kernels
    depths: tuple[int, ...]
    """[M] in turns; inf is T_max."""
    law: Ints
    """[2, D, X] the grid's law of each class's contexts, and of its states."""
    kappa: Floats
    """[D]"""
    tokens: Floats
    """[D, X] tokens of a teacher turn."""
    scale: Floats
    """[D, M] measured tokens of a context over the chain's."""
    price: Floats
    """[D, M] price on the axis of one teacher token of a context."""
    demo_scale: Floats
    """[D] the same two of a demonstration."""
    demo_price: Floats
    """[D]"""
    student: Floats
    """[D] measured J of the student."""
    teacher: Floats
    """[D] measured J of the teacher, from its demonstrations."""


@dataclass(frozen=True)
class _Tasks:
    """Sums over tasks, resampled."""

    weights: Floats
    """[D, Q] multiplicities."""

    def total(self, values: Floats, cluster: Ints) -> Floats:
        """[D, ...] sums of values [B, ...]."""
        return np.asarray(
            self.weights @ by_cluster(values, cluster=cluster, n_clusters=self.weights.shape[1])
        )

    def mean(self, values: Floats, cluster: Ints) -> Floats:
        """[D, ...] means of values [B, ...], NaN left out."""
        rows = values.reshape(len(values), -1)
        known = np.isfinite(rows[:, 0])
        count = np.maximum(self.total(np.ones(int(known.sum())), cluster[known]), 1e-12)
        means = self.total(rows[known], cluster[known]) / count[:, None]
        return means if values.ndim > 1 else means[:, 0]


def build(
    pilot: Pilot,
    classes: Classes,
    *,
    depths: tuple[int, ...],
    each: Floats,
    demo_each: Floats,
    draws: int,
    seed: int,
    kappa: Kappa | None = None,
) -> Model:
    """Estimate the model for the pilot and `draws` bootstraps of its tasks.

    each: [C, T_max] price of a context at every K; demo_each: [B] price of a demonstration.
    kappa: what trainings said of the learning curve; None for its wide prior.
    """
    rng = np.random.default_rng(seed)
    Q = len(pilot.clusters)
    drawn = rng.multinomial(Q, np.full(Q, 1 / Q), size=draws)
    steps, demos, contexts = pilot.steps, pilot.demos, pilot.contexts
    # Few demonstrations may all be missed: such a draw is the pilot itself.
    drawn[drawn[:, np.unique(demos.cluster)].sum(1) == 0] = 1
    tasks = _Tasks(np.vstack([np.ones(Q), drawn]).astype(float))
    kernels = chain.kernels(pilot, classes, tasks.weights)
    played, spent = (
        tasks.total(_by_class(classes, steps.teacher, amount), steps.cluster[steps.teacher])
        for amount in (np.ones(len(steps)), steps.tokens)
    )
    tokens = (spent + steps.tokens[steps.teacher].mean()) / (played + 1.0)
    column = np.array(depths) - 1
    bought = tasks.mean(costs_of_contexts(pilot, axis="inference", prices=None)[:, column], contexts.cluster)
    shown = tasks.mean(demo_cost(pilot, axis="inference", prices=None), demos.cluster)
    switch = chain.contexts(kernels.start, kernels.student, T_max=kernels.T_max)
    modelled = (chain.exposure(switch, kernels.teacher, depths=list(depths)) * tokens).sum(2).T
    whole = chain.exposure(kernels.start, kernels.teacher, depths=[kernels.T_max])[0]
    return Model(
        ground=survey(pilot, classes),
        kernels=kernels,
        depths=depths,
        law=np.stack(
            [_laws(law_posterior(what, steps, classes), draws, rng) for what in (steps.node, steps.state)]
        ),
        kappa=_kappas(kappa or prior_of(steps), draws, rng),
        tokens=tokens,
        scale=bought / modelled,
        price=tasks.mean(each[:, column], contexts.cluster) / bought,
        demo_scale=shown / (whole * tokens).sum(1),
        demo_price=tasks.mean(demo_each, demos.cluster) / shown,
        student=tasks.mean(pilot.rollouts.R, pilot.rollouts.cluster),
        teacher=tasks.mean(demos.R, demos.cluster),
    )


def _kappas(known: Kappa, draws: int, rng: np.random.Generator) -> Floats:
    """[D] the centre first."""
    return np.append(known.centre, known.draws(draws, rng))


def _by_class(classes: Classes, which: np.ndarray, amount: Floats) -> Floats:
    """[n, X] the amount of each chosen step, in the column of its class."""
    rows = np.flatnonzero(which)
    table = np.zeros((len(rows), classes.n))
    table[np.arange(len(rows)), classes.label[rows]] = amount[rows]
    return table


def _laws(posterior: Floats, draws: int, rng: np.random.Generator) -> Ints:
    """[D, X] a law for each class from its posterior [X, laws]; the most likely one first."""
    running = np.cumsum(posterior, axis=1)
    drawn = (running[None] < rng.random((draws, len(posterior), 1))).sum(2)
    return np.vstack([posterior.argmax(1), np.minimum(drawn, posterior.shape[1] - 1)])
