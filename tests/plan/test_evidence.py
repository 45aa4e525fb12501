"""What is read from small trainings: one observation a form, its noise, and whether arms differ at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import f_oneway

from analysis.curves.arms import Arm, features
from analysis.curves.evidence import Training, distinguishable, measured, observations
from analysis.curves.prior import shipped
from analysis.plan.kept import training_of

BC, SHORT, SUCCESS = Arm("pure-bc", r=0.0), Arm("op-short", 3.0, 0.5), Arm("op-success", r=1.0)
HALF = Training(SHORT, 1.0, 1.0, 0, (2.0,) * 50, (4,) * 50)
PRIOR = shipped()


def at_level(logit: float, arm: Arm, *, tokens: float = 1.0, sunk: float = 0.0, seed: int = 0) -> Training:
    """A training with a given logit of pass@1."""
    won = (10_001 * float(expit(logit)) - 0.5) / 100
    own = (1 - arm.r) * tokens, arm.r * tokens
    return Training(arm, *own, seed, (won,) * 100, (100,) * 100, sunk_tokens=sunk)


@pytest.mark.parametrize(
    ("successes", "variance"),
    [
        ((2.0,) * 50, 0.5 * 0.25 / 200),
        ((4.0, 0.0) * 25, 50 / 49 * 50 * 4 / 200**2),
        ((4.0, 0.0), 2 * 8 / 8**2),
        ((2.0,), 0.25 / 4 * 4),
    ],
    ids=["half the binomial one", "clustered", "two tasks", "one task"],
)
def test_the_noise_of_an_evaluation_by_hand(successes: tuple[float, ...], variance: float) -> None:
    training = Training(BC, 1, 0, 0, successes, (4,) * len(successes))
    assert measured(training) == (0.0, pytest.approx(variance / 0.25**2))


@pytest.mark.parametrize(
    ("change", "observed"),
    [
        ({"seed": 1}, 1),
        ({"demo_tokens": 1.02, "continuation_tokens": 1.02}, 1),
        ({"demo_tokens": 1.2, "continuation_tokens": 1.2}, 2),
        ({"demo_tokens": 0.98, "continuation_tokens": 1.02}, 1),
        ({"demo_tokens": 0.8, "continuation_tokens": 1.2}, 2),
        ({"sunk_tokens": 1.0}, 2),
        ({"arm": replace(SHORT, r=0.75)}, 1),
        ({"arm": replace(SHORT, pilot_traces="all")}, 1),
        ({"arm": replace(SHORT, K=5.0)}, 2),
        ({"arm": replace(SHORT, context="mixed")}, 2),
        ({"arm": Arm("op-failed", 3.0, 0.5)}, 2),
    ],
)
def test_trainings_of_one_form_and_about_one_size_are_one_observation(
    change: dict[str, object], observed: int
) -> None:
    rows, logits, noise = observations([HALF, replace(HALF, **change)], PRIOR, pilot=10.0)  # type: ignore[arg-type]
    assert (len(rows), len(logits), noise.shape) == (observed, observed, (observed, observed))


def test_an_observation_is_the_mean_weighted_by_precision() -> None:
    first = replace(HALF, continuation_tokens=1.02, sunk_tokens=10.0)
    second = replace(first, continuation_tokens=1.04, successes=(4.0, 2.0) * 25)
    rows, logits, noise = observations([first, second], PRIOR, pilot=2.0)
    (a, u), (b, v) = measured(first), measured(second)
    own = [
        features(SHORT, t.tokens / 2, sunk=5.0, r=t.continuation_tokens / t.tokens) for t in (first, second)
    ]
    assert v > 3 * u
    assert logits == pytest.approx([(a / u + b / v) / (1 / u + 1 / v)])
    assert rows[0] == pytest.approx((own[0] / u + own[1] / v) / (1 / u + 1 / v))
    shared = PRIOR.training_variance((first.tokens + second.tokens) / 4 + 5.0)
    assert noise[0] == pytest.approx([1 / (1 / u + 1 / v) + shared])


def test_what_arms_differ_by_because_of_their_sizes_is_no_difference() -> None:
    rng = np.random.default_rng(3)

    def p(of: str) -> float:
        levels = [
            (arm, size) for arm, most in ((BC, 1.0), (SUCCESS, 8.0)) for size in most * 2.0 ** np.arange(6)
        ]
        found = []
        for seed, (arm, size) in enumerate(levels):
            y = 0.3 * np.log(size if of == "tokens" else 1 + size) + 0.05 * rng.standard_normal()
            more = {"tokens": size} if of == "tokens" else {"sunk": size}
            found.append(at_level(y, arm, seed=seed, **more))
        return distinguishable(found)

    assert p("tokens") > 0.1
    assert p("data beside") > 0.1


def test_whether_arms_differ_is_the_permutation_test_of_one_way_analysis_of_variance() -> None:
    rng = np.random.default_rng(5)
    for _ in range(2):
        groups = np.repeat([0, 1, 2], (2, 3, 12))
        y = rng.normal(np.array([0.8, 0.0, 0.3])[groups], 1.0)
        found = [
            at_level(level, (BC, SHORT, SUCCESS)[g], seed=n)
            for n, (level, g) in enumerate(zip(y, groups, strict=True))
        ]

        def F(x: np.ndarray, groups: np.ndarray = groups) -> float:
            return float(f_oneway(*(x[groups == g] for g in range(3))).statistic)

        naive = np.mean([F(rng.permutation(y)) >= F(y) for _ in range(300)])
        assert distinguishable(found) == pytest.approx(naive, abs=0.08)


def test_equal_trainings_and_arms_that_were_trained_once_are_not_told_apart() -> None:
    twice = [at_level(0.3, arm, seed=seed) for arm in (BC, SUCCESS) for seed in range(3)]
    assert distinguishable(twice) == 1.0
    assert distinguishable([]) == 1.0
    assert distinguishable([at_level(level, BC) for level in (-1.0, 0.0, 2.0)]) == 1.0
    once = [at_level(-1.0, BC), at_level(1.0, SHORT), at_level(0.0, SUCCESS)]
    assert distinguishable(once) == 1.0
    apart = [at_level(5.0 * t.arm.r + 0.1 * t.seed, t.arm, seed=t.seed) for t in twice * 2]
    assert distinguishable(apart, permutations=9) == 0.1, "what was seen is one of the permutations"


def test_a_kept_training_has_the_attempts_of_each_cluster_by_its_name() -> None:
    told = {"arm": SHORT.to_dict(), "demo_tokens": 3, "continuation_tokens": 4, "seed": 5, "seconds": 1.5}
    rows = [("b/1", "b", 1.0), ("a/1", "a", 0.6), ("b/2", "b", 0.5), ("a/1", "a", 0.4), ("b/1", "b", 0.9)]
    attempts = [{"task_id": task, "cluster_id": cluster, "score": R} for task, cluster, R in rows]
    found = training_of(told, attempts, success_at=0.6)
    # Every task counts as one with the mean number of attempts, 5 / 3, and two of three are of cluster b.
    assert found.tasks == ("a", "b")
    assert found.successes == pytest.approx((5 / 6, 5 / 3))
    assert found.attempts == pytest.approx((5 / 3, 10 / 3))
    assert (found.arm, found.demo_tokens, found.continuation_tokens) == (SHORT, 3, 4)
    assert (found.seed, found.seconds, found.sunk_tokens) == (5, 1.5, 0)
    again = training_of(told | {"sunk_tokens": 7}, attempts[::-1], success_at=0.6)
    assert (again.tasks, again.successes, again.sunk_tokens) == (found.tasks, found.successes, 7)
