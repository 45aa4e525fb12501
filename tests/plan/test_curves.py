"""Laws of the model of learning curves, and a naive twin of its conditioning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.curves.acquisition import Possible, next_training
from analysis.curves.arms import DIMENSION, EFFECTS, KNOTS, Arm, effects, features, hat
from analysis.curves.curves import (
    Training,
    bands,
    conditioned,
    distinguishable,
    draws,
    expected,
    expected_regret,
    measured,
    observations,
    p_best,
    posterior,
)
from analysis.curves.prior import Facts, Prior, fact_vector, from_json, shipped, to_json

INF = float("inf")
CANDIDATES = [
    Arm("pure-bc"),
    Arm("op-short", 3, 0.5),
    Arm("op-success", INF, 1.0),
    Arm("op-critical", INF, 1.0, "all"),
    Arm("op-failed", 2, 0.75),
]
D = DIMENSION + 12


def toy(components: int = 2, seed: int = 0) -> Prior:
    """A small proper prior."""
    rng = np.random.default_rng(seed)
    roots = [rng.standard_normal((D, D)) / np.sqrt(D) for _ in range(components)]
    S = np.array([0.1 * A @ A.T + 0.05 * np.eye(D) for A in roots])
    return Prior(
        np.log(np.full(components, 1 / components)),
        0.3 * rng.standard_normal((components, D)),
        S,
        tuple(f"c{k}" for k in range(components)),
        np.zeros(12),
        np.ones(12),
        0.05,
        0.004,
        (0.002, 0.001),
        {("op-success", INF, 1.0): (0.02, 0.03)},
        {"date": "none"},
    )


PRIOR = toy()
FACTS = Facts((15, 60), (30, 40), (25, 60), T_max=12, nll_demo=1.1)
ARMS = st.sampled_from(
    [Arm("pure-bc"), Arm("op-success", INF, 1.0), Arm("op-short", 3, 0.5), Arm("op-failed", 1, 1.0)]
)


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    """A training with its own arm's share of on-policy tokens."""
    arm, size = draw(ARMS), draw(st.floats(0.1, 3))
    wins = draw(st.lists(st.integers(0, 4), min_size=5, max_size=30))
    return Training(
        arm,
        (1 - arm.r) * size,
        arm.r * size,
        draw(st.integers(0, 9)),
        tuple(map(float, wins)),
        (4,) * len(wins),
    )


many = st.lists(trainings(), min_size=1, max_size=6)


def test_features_have_one_row_of_the_right_length() -> None:
    assert len(effects(Arm("oec", INF, 0.5))) == len(EFFECTS)
    assert features(Arm("pure-bc"), 1.0).shape == (DIMENSION,)


@given(st.floats(0.01, 1000))
def test_knots_weigh_one(size: float) -> None:
    weights = hat(size)
    assert np.isclose(weights.sum(), 1)
    assert (weights >= 0).all()
    inside = np.clip(np.log(size), KNOTS[0], KNOTS[-1])
    assert np.isclose(weights @ KNOTS, inside)


def test_pure_bc_is_level_alone() -> None:
    assert np.count_nonzero(effects(Arm("pure-bc"))) == 1


def test_unfiltered_traces_matter_less_with_size() -> None:
    gap = [features(Arm("pure-bc", traces="all"), s, True)[-1] for s in (2.0, 5.0, 20.0)]
    assert gap[0] > gap[1] > gap[2] > 0 == features(Arm("pure-bc"), 5.0, True)[-1]


@settings(deadline=None, max_examples=25)
@given(many, st.randoms(use_true_random=False))
def test_order_of_trainings_does_not_matter(found: list[Training], random: object) -> None:
    other = found.copy()
    random.shuffle(other)  # type: ignore[attr-defined]
    a, b = (posterior(x, FACTS, CANDIDATES, [5], PRIOR) for x in (found, other))
    assert np.allclose(a.center, b.center, atol=1e-7)
    assert np.allclose(a.covariance, b.covariance, atol=1e-7)


def test_nothing_measured_is_the_prior() -> None:
    post = posterior([], Facts(), CANDIDATES, [5], PRIOR)
    X = np.array([features(a, 5, True) for a in CANDIDATES])
    off = np.array([0, 0, 0.02, 0, 0])
    assert np.allclose(post.means, PRIOR.means[:, :DIMENSION] @ X.T + off)
    assert np.allclose(post.weights, 0.5)


@settings(deadline=None, max_examples=25)
@given(many)
def test_conditioning_is_the_naive_formula(found: list[Training]) -> None:
    one = toy(1)
    rows, y, noise = observations(found, one)
    facts = fact_vector(FACTS)
    _, means, covariances = conditioned(one, rows, y, noise, facts)
    known = np.isfinite(facts)
    precision, shift = np.linalg.inv(one.covariances[0]), np.linalg.solve(one.covariances[0], one.means[0])
    for row, value, variance in zip(
        rows, y, noise, strict=True
    ):  # one observation after another, in information form
        x = np.concatenate([row, np.zeros(12)])
        precision, shift = precision + np.outer(x, x) / variance, shift + x * value / variance
    for k in np.flatnonzero(known):
        precision[DIMENSION + k, DIMENSION + k] += 1 / one.fact_noise
        shift[DIMENSION + k] += facts[k] / one.fact_noise
    assert np.allclose(covariances[0], np.linalg.inv(precision), atol=1e-7)
    assert np.allclose(means[0], np.linalg.solve(precision, shift), atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(many)
def test_more_noise_widens(found: list[Training]) -> None:
    one = toy(1)
    rows, y, noise = observations(found, one)
    narrow, wide = (conditioned(one, rows, y, noise * c, np.full(12, np.nan))[2][0] for c in (1.0, 4.0))
    assert np.linalg.eigvalsh(wide - narrow).min() > -1e-8


@settings(deadline=None, max_examples=25)
@given(many)
def test_one_more_training_never_widens_a_single_component(found: list[Training]) -> None:
    one = toy(1)
    before, after = (posterior(x, FACTS, CANDIDATES, [5, 20], one) for x in (found[:-1], found))
    assert (np.diag(after.covariance) <= np.diag(before.covariance) * 1.02 + 1e-9).all()


@settings(deadline=None, max_examples=25)
@given(many, st.permutations(range(len(CANDIDATES))))
def test_permuting_candidates_permutes_answers(found: list[Training], order: list[int]) -> None:
    a = posterior(found, FACTS, CANDIDATES, [5], PRIOR)
    b = posterior(found, FACTS, [CANDIDATES[k] for k in order], [5], PRIOR)
    assert np.allclose(a.center[order], b.center)
    assert np.allclose(expected(a)[order], expected(b))


@settings(deadline=None, max_examples=25)
@given(many, st.floats(0.5, 0.95))
def test_bands_are_inside_and_nested(found: list[Training], level: float) -> None:
    post = posterior(found, FACTS, CANDIDATES, [5, 20], PRIOR)
    low, high = bands(post, level)
    wider = bands(post, min(0.99, level + 0.04))
    assert ((low > 0) & (low < high) & (high < 1)).all()
    assert (wider[0] <= low + 1e-9).all()
    assert (wider[1] >= high - 1e-9).all()


def test_draws_agree_with_bands_and_means() -> None:
    post = posterior([], FACTS, CANDIDATES, [5], PRIOR)
    sample = draws(post, 40_000)
    low, high = bands(post)
    assert np.allclose(sample.mean(0), expected(post), atol=0.01)
    assert np.allclose(((low <= sample) & (sample <= high)).mean(0), 0.9, atol=0.01)
    assert np.isclose(p_best(sample).sum(), 1)
    assert (expected_regret(sample) >= 0).all()


def test_evaluation_noise_is_clustered_by_task() -> None:
    spread = Training(CANDIDATES[0], 1, 0, 0, (2.0,) * 50, (4,) * 50)
    lumped = replace(spread, successes=(4.0, 0.0) * 25)
    assert measured(spread)[0] == measured(lumped)[0]
    assert measured(lumped)[1] > 3 * measured(spread)[1]


@pytest.mark.parametrize(
    "change", [{"successes": ()}, {"successes": (5.0,) * 50}, {"demo_tokens": 0.0}, {"attempts": (4,) * 49}]
)
def test_bad_trainings_are_refused(change: dict[str, object]) -> None:
    good = Training(CANDIDATES[0], 1, 0, 0, (2.0,) * 50, (4,) * 50)
    with pytest.raises(ValueError, match=r"training|successes"):
        replace(good, **change)  # type: ignore[arg-type]


def test_bad_arms_are_refused() -> None:
    for bad in (("nothing", 1, 0.5), ("op-short", 0, 0.5), ("op-short", 1, 1.5)):
        with pytest.raises(ValueError, match=r"arm|recipe"):
            Arm(*bad)


def test_missing_facts_are_left_out() -> None:
    assert np.isnan(fact_vector(Facts())).all()
    assert np.isfinite(fact_vector(FACTS)).sum() == 5


def test_json_keeps_the_prior() -> None:
    again = from_json(to_json(PRIOR))
    assert np.allclose(again.means, PRIOR.means, rtol=1e-3)
    assert np.allclose(again.covariances, PRIOR.covariances, atol=1e-3)
    assert again.offsets == PRIOR.offsets
    assert again.provenance == PRIOR.provenance


def test_worth_is_positive_falls_with_noise_and_counts_minutes() -> None:
    post = posterior([], FACTS, CANDIDATES, [5], PRIOR)
    arm = Arm("op-success", INF, 1.0)
    found = next_training(
        post, [Possible(arm, 0.5, 1, 400), Possible(arm, 0.5, 1, 40), Possible(arm, 0.5, 10, 400)], PRIOR
    )
    worth = {(w.training.episodes, w.training.minutes): w for w in found}
    assert worth[400, 1].fall >= worth[40, 1].fall >= 0
    assert np.isclose(worth[400, 10].per_minute * 10, worth[400, 1].per_minute)


def test_no_information_is_not_called_information() -> None:
    rng = np.random.default_rng(0)
    p = []
    for _ in range(60):
        found = [
            Training(
                a, 0.4 * (1 - a.r), 0.4 * a.r, k, tuple(map(float, rng.binomial(4, 0.4, 100))), (4,) * 100
            )
            for a in (CANDIDATES[0], CANDIDATES[2])
            for k in range(6)
        ]
        p.append(distinguishable(found, 99))
    assert np.mean(np.array(p) <= 0.05) < 0.15
    apart = [
        replace(t, successes=tuple(np.minimum(4, np.array(t.successes) + 1))) if t.arm.r else t for t in found
    ]
    assert distinguishable(apart, 99) <= 0.05


def test_trainings_of_one_form_are_one_observation() -> None:
    one = Training(CANDIDATES[2], 0, 0.5, 0, (2.0,) * 50, (4,) * 50)
    rows, y, noise = observations([one, replace(one, seed=1)], PRIOR)
    alone = observations([one], PRIOR)
    assert rows.shape == (1, DIMENSION)
    assert np.isclose(y[0], alone[1][0])
    assert np.isclose(noise[0] - PRIOR.unlike(0.5), (alone[2][0] - PRIOR.unlike(0.5)) / 2)


def test_the_curve_may_bend_between_knots_only() -> None:
    bent = replace(PRIOR, bend=0.01)
    assert np.isclose(bent.unlike(0.5), PRIOR.unlike(0.5))
    assert np.isclose(bent.unlike(5), PRIOR.unlike(5))
    assert np.isclose(bent.unlike(2.0) - PRIOR.unlike(2.0), 0.01)
    assert from_json(to_json(bent)).bend == bent.bend


def test_shipped_prior_loads_and_answers() -> None:
    prior = shipped()
    assert np.isclose(np.exp(prior.log_weights).sum(), 1, atol=1e-3)
    post = posterior([], FACTS, CANDIDATES, [5, 20], prior)
    low, high = bands(post)
    assert (low < expected(post)).all()
    assert (expected(post) < high).all()
