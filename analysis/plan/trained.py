"""kappa from trained students: pass@1 that the model expects after given turns, at every kappa of a grid.

The turns are the pilot's own, so it is known which contexts they label: nothing of a purchase is guessed.
Each draw of the model is an imagined world in which the pilot's labels are replaced by those of the
training, and the ends are pinned to what was measured, as in `predict`.

Axes: G contexts of the pilot, D draws, N values of kappa.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.plan.calibrate import Kappa, kappa_posterior, prior_of
from analysis.plan.classes import find_classes
from analysis.plan.costs import costs_of_contexts, demo_cost
from analysis.plan.imagined_exact import values
from analysis.plan.model import Model, build
from analysis.plan.pilot import Floats, Pilot
from analysis.plan.predict import world_of
from analysis.plan.reading import LEAST_REPEATED, repeated_share
from analysis.plan.trainings import Training, held_out
from occupancy.record.errors import InputError

DRAWS = 24


def learn_kappa(pilot: Pilot, trainings: Sequence[Training], *, seed: int = 0) -> Kappa:
    """Posterior of kappa from trainings on the pilot's traces that started from the pilot's student."""
    repeated = repeated_share(pilot.steps.node, pilot.steps.cluster, pilot.steps.teacher)
    if not np.isfinite(pilot.demos.R).any() or repeated < LEAST_REPEATED:
        raise InputError(
            f"--calibrate: the pilot has {len(pilot.demos.R)} demonstrations, and {repeated:.0%} of the "
            f"student's turns are at contexts that another task met; a model needs some, and "
            f"{LEAST_REPEATED:.0%}; plan without --calibrate"
        )
    model = build(
        pilot,
        find_classes(pilot),
        depths=(pilot.recipe.T_max,),
        each=costs_of_contexts(pilot, axis="inference", prices=None),
        demo_each=demo_cost(pilot, axis="inference", prices=None),
        draws=DRAWS,
        seed=seed,
    )
    evaluated = [one for one in trainings if np.isfinite(one.J)]
    before = prior_of(pilot.steps)
    predicted = np.zeros((len(evaluated), len(model.kappa), len(before.grid)))
    for at, one in enumerate(evaluated):
        predicted[at] = expected(model, one.labels, before.grid, seed=seed)
    return kappa_posterior(
        predicted,
        np.array([one.J for one in evaluated]),
        np.array([one.se for one in evaluated]),
        before=before,
        loglik=held_out(trainings, before.grid),
    )


def expected(model: Model, labels: Floats, grid: Floats, *, seed: int = 0) -> Floats:
    """[D, N] pass@1 after training on labels [G] of each context of the pilot, at kappa in grid [N]."""
    D, T_max = len(model.kappa), model.kernels.T_max
    own = replace(model, ground=replace(model.ground, demos=labels, on_policy=np.zeros_like(labels)))
    J, ends = np.zeros((D, len(grid))), np.zeros((D, 2))
    for draw in range(D):
        world = world_of(own, draw, seed=seed)
        read, crowd = world.places.unit, world.places.kappa / model.kappa[draw]
        labels = world.demos[read, None]
        learnt = labels / (labels + grid * crowd[read, None])
        whole = np.column_stack([learnt, np.zeros(len(read)), np.ones(len(read))])
        found = values(world.places, whole, np.zeros_like(whole), T_max)
        J[draw], ends[draw] = found[:-2], found[-2:]
    width = ends[:, 1] - ends[:, 0]
    stretch = (model.teacher - model.student) / np.maximum(width, max(float(width.mean()) / 2, 1e-3))
    return np.asarray(np.clip(model.student[:, None] + (J - ends[:, :1]) * stretch[:, None], 0.0, 1.0))
