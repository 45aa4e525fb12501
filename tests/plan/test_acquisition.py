"""The worth of a training is what conditioning on it would bring; the search ends where that is nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from test_curves import CANDIDATES, FACTS, toy

from analysis.curves.acquisition import (
    ENOUGH,
    FIRST_TRAININGS,
    LEAST_WORTH,
    Option,
    next_training,
    next_trainings,
    worth,
)
from analysis.curves.arms import DIMENSION, Arm, features
from analysis.curves.curves import conditioned, posterior
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts

SUCCESS, SHORT = Arm("op-success", r=1.0), Arm("op-short", 3.0, 0.5)
MADE = [Training(SUCCESS, 0, 1, seed, (1.0, 0.0, 2.0), (2, 1, 3)) for seed in range(ENOUGH)]
OPTIONS = [Option(arm, size, seed) for arm in (SUCCESS, SHORT) for size in (0.5, 1.0) for seed in range(2)]


@pytest.mark.parametrize("episodes", [4, 400])
@pytest.mark.parametrize(("arm", "cut"), [(SUCCESS, 0.3), (SHORT, 1.0), (Arm("pure-bc", r=0.0), 2.0)])
def test_what_a_training_is_worth_is_what_conditioning_on_it_brings(
    arm: Arm, cut: float, episodes: int
) -> None:
    prior = replace(toy(1, 4), training=0.3, bend=0.2)
    prior = replace(prior, means=prior.means * 0.1, covariances=5 * prior.covariances)
    post = replace(posterior([], Facts(), prior), sunk=0.5)
    J, center = post.expected(CANDIDATES, 5), post.logits(CANDIDATES, 5)[0][0]
    x = features(arm, cut, sunk=0.5)
    p = expit(x @ post.mean)
    noise = 1 / (episodes * p * (1 - p)) + prior.training_variance(cut + 0.5)
    row, none = np.atleast_2d(x), np.full(12, np.nan)
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    best = []
    for z in nodes:
        seen = x @ post.mean + z * np.sqrt(x @ post.covariance @ x + noise)
        mean = conditioned(prior, row, np.array([seen]), np.array([[noise]]), none)[1][:, :DIMENSION]
        moved = replace(post, means=mean).logits(CANDIDATES, 5)[0][0] - center
        best.append(max(J + expit(center) * expit(-center) * moved))
    expected = weights @ best / weights.sum() - J.max()
    assert expected > 1e-3
    assert worth(post, CANDIDATES, 5, [(arm, cut)], episodes=episodes) == pytest.approx([expected])


@pytest.fixture
def falls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Says what trainings of a form and size are worth, and keeps what was asked."""
    told: dict[str, Any] = {"of": lambda arm, size: 0.0}

    def worth(post: Any, arms: Any, size: float, trainings: Any, *, episodes: int) -> np.ndarray:
        told.update(size=size, episodes=episodes)
        return np.array([told["of"](*each) for each in trainings])

    monkeypatch.setattr("analysis.curves.acquisition.worth", worth)
    return told


def test_after_the_first_trainings_the_one_that_is_worth_most_is_next(falls: dict[str, Any]) -> None:
    falls["of"] = lambda arm, size: 0.01 * (arm == SHORT) + 0.02 * (size < 0.3)
    facts = replace(FACTS, pilot=2.0)
    first = next_training(MADE[: FIRST_TRAININGS - 1], facts, CANDIDATES, OPTIONS, 6.0)
    assert first == Option(SUCCESS, 1.0, 0), "the largest of a fixed form, the least seed"
    assert next_training(MADE[:FIRST_TRAININGS], facts, CANDIDATES, OPTIONS, 6.0) == Option(SHORT, 0.5, 0)
    assert (falls["size"], falls["episodes"]) == (4.0, 6)


def test_the_search_ends_where_nothing_is_worth_it_and_enough_were_made(falls: dict[str, Any]) -> None:
    def chosen(n: int, value: float) -> Option | None:
        falls["of"] = lambda arm, size: value
        return next_training(MADE[:n], FACTS, CANDIDATES, OPTIONS, 4.0)

    assert chosen(ENOUGH - 1, LEAST_WORTH) == Option(SUCCESS, 1.0, 0)
    assert chosen(ENOUGH, LEAST_WORTH) is None
    assert chosen(ENOUGH, 1.01 * LEAST_WORTH) == Option(SUCCESS, 0.5, 0)


def test_trainings_of_a_batch_are_distinct_and_no_more_than_are_offered(falls: dict[str, Any]) -> None:
    falls["of"] = lambda arm, size: 1.0 + (arm == SHORT) + (size == 1.0)
    batch = next_trainings(MADE, FACTS, CANDIDATES, OPTIONS, 4.0, begun=ENOUGH, n=3)
    assert [(o.arm, o.budget, o.seed) for o in batch] == [(SHORT, 1.0, 0), (SHORT, 1.0, 1), (SUCCESS, 1.0, 0)]
    every = next_trainings(MADE, FACTS, CANDIDATES, OPTIONS, 4.0, begun=ENOUGH, n=20)
    assert sorted(every, key=OPTIONS.index) == OPTIONS
