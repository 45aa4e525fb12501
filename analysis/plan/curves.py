"""Between the planner and the model of learning curves, `analysis.curves`: beliefs, and the next training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.curves import acquisition, prior
from analysis.curves import curves as model
from analysis.curves.arms import DIMENSION, features
from analysis.curves.arms import Arm as ModelArm
from analysis.plan.arms import Arm, Facts, Training
from analysis.plan.pilot import Floats
from analysis.plan.posterior import DRAWS, Option, Posterior
from occupancy.record.recipe import INF

FIRST = (
    Arm("pilot", INF, 0.5, "success"),
    Arm("op-success", INF, 1.0),
    Arm("pure-bc", INF, 0.0),
)
"""Trained first, in turn: the pilot's own successes, and the two ends of r at the largest size."""
FIRST_TRAININGS = 8
"""From then on trainings are chosen by what they are worth."""
LEAST_WORTH = 1e-5
"""Of pass@1: a single training that is expected to bring less than this ends the search, after ENOUGH."""
ENOUGH = 16
"""One training seldom changes a choice that several do, so the first of these are made in any case."""


def posterior(
    trainings: Sequence[Training],
    facts: Facts,
    arms: Sequence[Arm],
    budgets: Sequence[float],
    *,
    seed: int = 0,
) -> Posterior:
    """What is believed of each arm at each budget of teacher tokens (C_i) bought beside the pilot."""
    known = prior.shipped()
    weights, means, covariances = _conditioned(trainings, facts, known)
    sizes = [(facts.pilot + budget) / facts.pilot for budget in budgets]
    own = [_model_arm(arm) for arm in arms]
    rows = np.array([[features(arm, size, final=True) for size in sizes] for arm in own])
    off = np.array([[known.offset(arm, size) for size in sizes] for arm in own])
    lack = np.sqrt([known.lack_of_fit(size) for size in sizes])
    rng = np.random.default_rng(seed)
    normal, unfit = rng.standard_normal((DRAWS, DIMENSION)), _alike(arms, rng)
    beta = np.empty((DRAWS, DIMENSION))
    first = 0
    for share, mean, cov in zip(np.cumsum(weights), means, covariances, strict=True):
        last = round(DRAWS * share)
        root = np.linalg.cholesky(cov + 1e-9 * np.trace(cov) / DIMENSION * np.eye(DIMENSION))
        beta[first:last] = mean + normal[first:last] @ root.T
        first = last
    logits = np.einsum("df,abf->dab", beta, rows, optimize=True) + off + unfit[:, :, None] * lack
    return Posterior(np.asarray(budgets, float), logits)


def next_training(
    trainings: Sequence[Training],
    facts: Facts,
    arms: Sequence[Arm],
    options: Sequence[Option],
    budget: float,
    *,
    begun: int | None = None,
) -> Option | None:
    """The training to make next: of a fixed few first, then the one that is worth most for its size.

    begun: trainings made since more data were bought; None: all of them.
    None where there is no option, or where none is expected to bring more than LEAST_WORTH of pass@1.
    """
    begun = len(trainings) if begun is None else begun
    if begun < FIRST_TRAININGS and (first := _first(trainings[len(trainings) - begun :], options)):
        return first
    if not options:
        return None
    known = prior.shipped()
    believed = model.posterior(
        [_model_training(t, facts) for t in trainings],
        facts.curves,
        [_model_arm(arm) for arm in arms],
        [(facts.pilot + budget) / facts.pilot],
        known,
    )
    tasks = np.mean([t.attempts.sum() for t in trainings]) if trainings else 400
    by_form: dict[acquisition.Possible, Option] = {}
    for option in options:
        form = acquisition.Possible(_model_arm(option.arm), option.budget / facts.pilot, episodes=int(tasks))
        by_form.setdefault(form, option)
    best = acquisition.next_training(believed, list(by_form), known)[0]
    if best.fall > LEAST_WORTH:
        return by_form[best.training]
    return _first(trainings[len(trainings) - begun :], options) if begun < ENOUGH else None


def apart(trainings: Sequence[Training], facts: Facts) -> float:
    """p-value of "all arms are equal" in the trainings; 1 where none was trained twice."""
    return model.distinguishable([_model_training(t, facts) for t in trainings])


def _first(trainings: Sequence[Training], options: Sequence[Option]) -> Option | None:
    """The largest offered training of the form in FIRST that was trained least often."""
    made = [_form(training.arm) for training in trainings]
    for form in sorted(map(_form, FIRST), key=made.count):
        own = [option for option in options if _form(option.arm) == form]
        if own:
            return max(own, key=lambda option: (option.budget, -option.seed))
    return None


def _form(arm: Arm) -> tuple[str, float, float, str]:
    """What tells forms of training apart."""
    own = arm.recipe == "pilot"
    return arm.recipe, arm.K, 0.0 if own else arm.r, arm.pilot_traces if own else ""


def _conditioned(
    trainings: Sequence[Training], facts: Facts, known: prior.Prior
) -> tuple[Floats, Floats, Floats]:
    seen = model.observations([_model_training(t, facts) for t in trainings], known)
    weights, means, covariances = model.conditioned(known, *seen, prior.fact_vector(facts.curves))
    return weights, means[:, :DIMENSION], covariances[:, :DIMENSION, :DIMENSION]


def _alike(arms: Sequence[Arm], rng: np.random.Generator) -> Floats:
    """[DRAWS, A] standard normal departures, the same for an arm with either choice of pilot traces."""
    forms = {(arm.recipe, arm.K, arm.r): None for arm in arms}
    place = {form: at for at, form in enumerate(forms)}
    drawn = rng.standard_normal((DRAWS, len(forms)))
    return np.asarray(drawn[:, [place[arm.recipe, arm.K, arm.r] for arm in arms]])


def _model_arm(arm: Arm) -> ModelArm:
    name = "pilot-success" if (arm.recipe, arm.pilot_traces) == ("pilot", "success") else arm.recipe
    return ModelArm(name, float(arm.K), arm.r, "success" if arm.pilot_traces == "success" else "all")


def _model_training(training: Training, facts: Facts) -> model.Training:
    return model.Training(
        _model_arm(training.arm),
        training.demo_tokens / facts.pilot,
        training.continuation_tokens / facts.pilot,
        training.seed,
        tuple(training.successes.tolist()),
        tuple(int(n) for n in training.attempts),
    )
