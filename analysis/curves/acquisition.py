"""Which training next: some fixed ones first, then the one whose expected fall of regret is largest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit  # type: ignore[import-untyped, unused-ignore]

from analysis.curves.arms import Arm, Array, features
from analysis.curves.curves import Posterior, posterior
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts
from occupancy.record.recipe import INF

FIRST = (
    Arm("pilot", INF, 0.5, "success"),
    Arm("op-success", INF, 1.0),
    Arm("pure-bc", INF, 0.0),
    Arm("pilot", INF, 0.5, "all"),
)
"""Trained first, in turn: the pilot's successes, the two ends of r at the largest size, the whole pilot."""
FIRST_LATER = (
    Arm("op-success", INF, 1.0),
    Arm("pure-bc", INF, 0.0),
    Arm("op-success", INF, 0.5),
    Arm("op-critical", INF, 1.0),
)
"""Trained in turn once more data were bought, ENOUGH in all: contrasts of r and of filters."""
FIRST_TRAININGS = 8
"""From then on trainings on the pilot are chosen by what they are worth."""
LEAST_WORTH = 1e-5
"""Of pass@1: a single training that is expected to bring less than this ends the search, after ENOUGH."""
ENOUGH = 16
"""One training seldom changes a choice that several do, so the first of these are made in any case."""
EPISODES = 400
"""Of an evaluation, where none was seen."""


@dataclass(frozen=True)
class Option:
    """A training that the pilot can supply."""

    arm: Arm
    budget: float
    """Teacher tokens of its cut."""
    seed: int


def next_training(
    trainings: Sequence[Training],
    facts: Facts,
    arms: Sequence[Arm],
    options: Sequence[Option],
    budget: float,
    *,
    begun: int | None = None,
) -> Option | None:
    """The training to make next; None where there is no option, or none is worth LEAST_WORTH of pass@1.

    Args:
        trainings: those made, in order.
        facts: of the pilot.
        arms: that compete for the budget.
        options: to choose from.
        budget: teacher tokens to be bought beside the pilot.
        begun: trainings made since more data were bought; None: all of them.
    """
    begun = len(trainings) if begun is None else begun
    later = begun < len(trainings)
    forms, fixed = (FIRST_LATER, ENOUGH) if later else (FIRST, FIRST_TRAININGS)
    first = _first(forms, trainings[len(trainings) - begun :], options)
    if not options or (first and begun < fixed):
        return first
    by_form: dict[tuple[Arm, float], Option] = {}
    for option in options:
        by_form.setdefault((option.arm, option.budget / facts.pilot), option)
    tasks = np.mean([round(sum(t.attempts)) for t in trainings]) if trainings else EPISODES
    size = (facts.pilot + budget) / facts.pilot
    falls = worth(posterior(trainings, facts), arms, size, list(by_form), episodes=int(tasks))
    best = int(falls.argmax())
    if falls[best] > LEAST_WORTH:
        return list(by_form.values())[best]
    return first if begun < ENOUGH else None


def next_trainings(
    trainings: Sequence[Training],
    facts: Facts,
    arms: Sequence[Arm],
    options: Sequence[Option],
    budget: float,
    *,
    begun: int,
    n: int,
) -> list[Option]:
    """Up to `n` distinct trainings to make at the same time; fewer where further ones are worth nothing.

    Each is chosen as if those before it had come out as expected (the "kriging believer" of Ginsbourger,
    Le Riche and Carraro, 2010). Arguments as of `next_training`.
    """
    known, left, chosen = list(trainings), list(options), list[Option]()
    while len(chosen) < n:
        option = next_training(known, facts, arms, left, budget, begun=begun + len(chosen))
        if option is None:
            break
        chosen.append(option)
        left.remove(option)
        if len(chosen) < n:
            known.append(_as_expected(option, known, facts))
    return chosen


def _as_expected(option: Option, trainings: Sequence[Training], facts: Facts) -> Training:
    """The training with the pass@1 that is believed, on the tasks of the last one: it shares their luck, and
    tasks that all go alike say nothing of how much trainings share."""
    like = trainings[-1] if trainings else None
    tasks = len(like.attempts) if like else EPISODES
    x = features(option.arm, option.budget / facts.pilot, sunk=facts.sunk / facts.pilot)
    p = float(expit(x @ posterior(trainings, facts).mean))
    parts = (1 - option.arm.r) * option.budget, option.arm.r * option.budget
    won, names = (p,) * tasks, like.tasks if like else ()
    return Training(option.arm, *parts, option.seed, won, (1,) * tasks, sunk_tokens=facts.sunk, tasks=names)


def worth(
    post: Posterior,
    arms: Sequence[Arm],
    size: float,
    trainings: Sequence[tuple[Arm, float]],
    *,
    episodes: int = EPISODES,
) -> Array:
    """[P] expected fall of the recommendation's regret, in pass@1, by each possible training.

    The knowledge gradient with correlated beliefs: a training with row x and variance s2 moves the means of
    the candidates by Z * X V x / sqrt(x V x + s2), Z standard normal; its worth is E max(moved E J) -
    max(E J), with d J / d logit at the centre. Subset seeds are alike before they are drawn. The noise is
    taken to be independent of that of earlier evaluations: on the same tasks a training is worth a little
    more, whichever it is.

    Args:
        post: what is believed.
        arms: the candidates.
        size: at which they compete, in pilot costs.
        trainings: possible ones: arm and size of the cut.
        episodes: of each evaluation.
    """
    J, center = post.expected(arms, size), post.weights @ post.logits(arms, size)[0]
    slope = expit(center) * (1 - expit(center))
    rows, mean, V = post.final(arms, size)[0], post.mean, post.covariance
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    weights = weights / weights.sum()
    found = []
    for arm, cut in trainings:
        x = features(arm, cut, sunk=post.sunk)
        p = float(expit(x @ mean))
        noise = 1 / (episodes * p * (1 - p)) + post.prior.training_variance(cut + post.sunk)
        step = slope * (rows @ (V @ x)) / np.sqrt(x @ V @ x + noise)
        found.append(max(float(weights @ (J[None] + nodes[:, None] * step[None]).max(1) - J.max()), 0.0))
    return np.array(found)


def _first(forms: Sequence[Arm], trainings: Sequence[Training], options: Sequence[Option]) -> Option | None:
    """The largest offered training of the form that was trained least often."""
    made = [training.arm.form for training in trainings]
    for form in sorted((arm.form for arm in forms), key=made.count):
        own = [option for option in options if option.arm.form == form]
        if own:
            return max(own, key=lambda option: (option.budget, -option.seed))
    return None
