"""Laws of the model of learning curves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from analysis.curves.arms import DIMENSION, KNOTS, Arm, features
from analysis.curves.curves import SURE, Posterior, conditioned, posterior
from analysis.curves.draws import band, drawn, not_worse, p_best, regret
from analysis.curves.evidence import Training, distinguishable, measured, observations
from analysis.curves.prior import ELSEWHERE, Facts, Prior, fact_vector, from_json, shipped
from benchmarks.planner_prior.learn import to_json
from occupancy.record.errors import DataError

INF = float("inf")
BC = Arm("pure-bc", r=0.0)
CANDIDATES = [
    BC,
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
ARMS = st.sampled_from([BC, Arm("op-success", INF, 1.0), Arm("op-short", 3, 0.5), Arm("op-failed", 1, 1.0)])


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
FEW = settings(max_examples=25)


@FEW
@given(many, st.floats(0, 5))
def test_the_unit_of_tokens_does_not_matter_with_data_beside(found: list[Training], sunk: float) -> None:
    facts = replace(FACTS, sunk=sunk)
    one = [replace(t, sunk_tokens=sunk) for t in found]
    tokens = [
        replace(
            t,
            demo_tokens=100 * t.demo_tokens,
            continuation_tokens=100 * t.continuation_tokens,
            sunk_tokens=100 * sunk,
        )
        for t in found
    ]
    a = posterior(one, facts, PRIOR)
    b = posterior(tokens, replace(facts, pilot=100.0, sunk=100 * sunk), PRIOR)
    assert np.allclose(a.expected(CANDIDATES, 5), b.expected(CANDIDATES, 5))
    few = drawn(b, CANDIDATES, [400.0, 800.0], pilot=100.0)
    assert np.allclose(expit(few.logits).mean(0)[:, 0], b.expected(CANDIDATES, 5), atol=0.03)


@FEW
@given(many, st.randoms(use_true_random=False))
def test_order_of_trainings_does_not_matter(found: list[Training], random: object) -> None:
    other = found.copy()
    random.shuffle(other)  # type: ignore[attr-defined]
    a, b = (posterior(x, FACTS, PRIOR) for x in (found, other))
    assert np.allclose(a.mean, b.mean, atol=1e-7)
    assert np.allclose(a.covariance, b.covariance, atol=1e-7)


def test_nothing_measured_is_the_prior() -> None:
    post = posterior([], Facts(), PRIOR)
    X = np.array([features(a, 5, final=True) for a in CANDIDATES])
    off = np.array([0, 0, 0.02, 0, 0])
    assert np.allclose(post.logits(CANDIDATES, 5)[0], PRIOR.means[:, :DIMENSION] @ X.T + off)
    assert np.allclose(post.weights, 0.5)


@FEW
@given(many)
def test_more_noise_widens(found: list[Training]) -> None:
    one = toy(1)
    rows, y, noise = observations(found, one)
    narrow, wide = (conditioned(one, rows, y, noise * c, np.full(12, np.nan))[2][0] for c in (1.0, 4.0))
    assert np.linalg.eigvalsh(wide - narrow).min() > -1e-8


@FEW
@given(many)
def test_one_more_training_never_widens_a_single_component(found: list[Training]) -> None:
    one = toy(1)
    before, after = (posterior(x, FACTS, one) for x in (found[:-1], found))
    for size in (5, 20):
        assert (after.logits(CANDIDATES, size)[1] <= before.logits(CANDIDATES, size)[1] * 1.01 + 1e-9).all()


@FEW
@given(many, st.permutations(range(len(CANDIDATES))))
def test_permuting_candidates_permutes_answers(found: list[Training], order: list[int]) -> None:
    post = posterior(found, FACTS, PRIOR)
    permuted = post.expected([CANDIDATES[k] for k in order], 5)
    assert np.allclose(post.expected(CANDIDATES, 5)[order], permuted)


def joint(post: Posterior, size: float) -> np.ndarray:
    """[DRAWS, A] of pass@1, the pilot as unit."""
    return 1 / (1 + np.exp(-drawn(post, CANDIDATES, [size - 1], pilot=1.0).logits[:, :, 0]))


@FEW
@given(many)
def test_draws_agree_with_means_and_bands_hold_them(found: list[Training]) -> None:
    post = posterior(found, FACTS, PRIOR)
    for size in (5.0, 20.0):
        J = joint(post, size)
        low, high = band(J)
        assert np.allclose(J.mean(0), post.expected(CANDIDATES, size), atol=0.02)
        assert ((low > 0) & (low < high) & (high < 1)).all()
        assert np.isclose(p_best(J).sum(), 1)
        assert (regret(J) >= 0).all()


def test_what_draws_say_of_arms_by_hand() -> None:
    draws = np.array([[0.5, 0.5, 0.1]] * 9 + [[0.2, 0.2, 0.3]])
    assert not_worse(draws, 0).tolist() == [True, True, False], "equal arms cannot be excluded"
    assert p_best(draws) == pytest.approx([0.9, 0.0, 0.1])
    assert regret(draws) == pytest.approx([0.01, 0.01, 0.36])


@given(trainings())
def test_failures_are_measured_as_successes_are(found: Training) -> None:
    lost = tuple(n - k for k, n in zip(found.successes, found.attempts, strict=True))
    (level, noise), (other, same) = measured(found), measured(replace(found, successes=lost))
    assert (other, same) == pytest.approx((-level, noise))


@pytest.mark.parametrize(
    "change",
    [
        {"successes": ()},
        {"successes": (5.0,) * 50},
        {"demo_tokens": 0},
        {"attempts": (4,) * 49},
        {"tasks": ("a", "b")},
        {"tasks": ("a",) * 50},
    ],
)
def test_bad_trainings_are_refused(change: dict[str, object]) -> None:
    good = Training(CANDIDATES[0], 1, 0, 0, (2.0,) * 50, (4,) * 50)
    with pytest.raises(ValueError, match=r"training|successes"):
        replace(good, **change)  # type: ignore[arg-type]


def test_missing_facts_are_left_out() -> None:
    assert np.isnan(fact_vector(Facts())).all()
    assert np.isfinite(fact_vector(FACTS)).sum() == 5


def test_json_keeps_the_prior() -> None:
    again = from_json(to_json(PRIOR))
    assert np.allclose(again.means, PRIOR.means, rtol=1e-3)
    assert np.allclose(again.covariances, PRIOR.covariances, atol=1e-3)
    assert again.offsets == PRIOR.offsets
    assert again.provenance == PRIOR.provenance


def test_a_prior_of_an_earlier_day_loads_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    stored = json.loads(to_json(PRIOR))
    assert from_json(json.dumps({k: v for k, v in stored.items() if k != "leads"})).leads == {}
    for damage in ({"names": ["c0"]}, {"log_weights": [0.0]}, {"tables": [True]}):
        with pytest.raises(ValueError, match="differ in number"):
            from_json(json.dumps(stored | damage))
    for number, text in enumerate(("", "[]", "{}", json.dumps(stored | {"covariance_of": [9, 9]}))):
        file = tmp_path / f"{number}.json"
        file.write_text(text)
        with pytest.raises(DataError, match=f"{number}.json is no prior"):
            shipped(file)


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
        p.append(distinguishable(found, permutations=99))
    assert np.mean(np.array(p) <= 0.05) < 0.15
    apart = [
        replace(t, successes=tuple(np.minimum(4, np.array(t.successes) + 1))) if t.arm.r else t for t in found
    ]
    assert distinguishable(apart, permutations=99) <= 0.05


def test_the_curve_may_bend_between_knots_only() -> None:
    bent = replace(PRIOR, bend=0.01)
    assert np.isclose(bent.training_variance(0.5), PRIOR.training_variance(0.5))
    assert np.isclose(bent.training_variance(5), PRIOR.training_variance(5))
    assert np.isclose(bent.training_variance(2.0) - PRIOR.training_variance(2.0), 0.01)
    assert from_json(to_json(bent)).bend == bent.bend


def test_shipped_prior_loads_and_answers() -> None:
    prior = shipped()
    assert np.isclose(np.exp(prior.log_weights).sum(), 1, atol=1e-3)
    assert ELSEWHERE in prior.names
    post = posterior([], FACTS)
    assert post.prior is prior
    low, high = band(joint(post, 5.0))
    J = post.expected(CANDIDATES, 5.0)
    assert ((low < J) & (high > J)).all()


def test_facts_alone_do_not_make_a_student_the_teacher() -> None:
    two = replace(toy(2), tables=(False, True))
    level = fact_vector(FACTS)
    nothing = np.zeros((0, DIMENSION)), np.zeros(0), np.zeros((0, 0))
    for own, expected in ((0, 1.0), (1, SURE)):
        # One component stands where the facts are, the other far away.
        means = two.means.copy()
        means[own, DIMENSION:] = np.nan_to_num((level - two.fact_mean) / two.fact_sd)
        means[1 - own, DIMENSION:] = means[own, DIMENSION:] + 20
        weights = conditioned(replace(two, means=means), *nothing, level)[0]
        assert weights[own] == pytest.approx(expected)


@pytest.mark.parametrize("sunk", [0.0, 3.0])
@pytest.mark.parametrize("level", [0.02, 0.05, 0.1, 0.3, 0.6, 0.9, 0.97])
def test_more_data_are_not_predicted_to_undo_what_trainings_have_reached(level: float, sunk: float) -> None:
    """On a real pilot students at .08 were predicted to fall to .02, as no world has students at .08."""
    arms = [BC, Arm("op-success", INF, 1.0)]
    seen = [
        Training(arm, 1 - arm.r, arm.r, seed, (level,) * 400, (1,) * 400, sunk_tokens=sunk)
        for arm in arms
        for seed in range(4)
    ]
    pilot = {"student": (round(40 * level), 40), "teacher": (39, 40), "learner": (36, 40), "T_max": 5.0}
    for facts in (Facts(sunk=sunk), Facts(**pilot, sunk=sunk)):  # type: ignore[arg-type]
        J = np.array([posterior(seen, facts).expected(arms, size) for size in (1, 2, 5, 20)])
        assert abs(J[0] - level).max() < 0.015
        assert (level - 0.01 < J).all()


@given(st.integers(0, 99))
@settings(max_examples=10)
def test_a_task_unlike_all_worlds_has_curves_that_rise(seed: int) -> None:
    """The moments of the restricted Gaussian are those of draws that rise."""
    prior = replace(toy(1, seed), names=(ELSEWHERE,))
    nothing = np.zeros((0, DIMENSION)), np.zeros(0), np.zeros((0, 0)), np.full(12, np.nan)
    _, means, covariances = conditioned(prior, *nothing)
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_normal(prior.means[0], prior.covariances[0], 40_000)
    rising = drawn[drawn[:, len(KNOTS) - 1] > drawn[:, 1]]
    se = rising.std(0) / np.sqrt(len(rising))
    assert (abs(means[0] - rising.mean(0)) < 5 * se).all()
    spread = np.sqrt(2 / len(rising)) * np.sqrt(np.diag(covariances[0]))[:, None] * rising.std(0)
    assert (abs(covariances[0] - np.cov(rising.T)) < 6 * spread).all()
