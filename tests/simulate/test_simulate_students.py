import jax
import numpy as np
import pytest

from simulate import LogLinear, Recovery, Tabular, recovery_world
from simulate.pipelines.outcome import chances_of, tables_of
from simulate.solving.jax64 import double_precision

WORLD = recovery_world(Recovery(tracks=3, first_repairs=20, features=8))
RNG = np.random.default_rng(0)
DATA = RNG.integers(0, 4, (*WORLD.base.shape, 3)) * (RNG.random((WORLD.X, 1, 3)) < 0.4)


def learnt(data, student):
    with double_precision():
        from simulate.pipelines.batched import learn

        return np.asarray(learn(tables_of(WORLD), jax.numpy.asarray(data, float), student))


def naive_gradient_descent(tokens, student):
    W = np.zeros((WORLD.features.shape[1], WORLD.A))
    speed = np.zeros_like(W)
    prior = np.log(np.maximum(WORLD.base, 1e-9))
    total = max(tokens.sum(), 1)

    def policy():
        odds = np.exp(prior + WORLD.features @ W)
        return odds / odds.sum(axis=1, keepdims=True)

    for _ in range(student.steps):
        slope = student.ridge / total * W
        for x, a in np.ndindex(tokens.shape):
            slope += tokens[x, a] / total * np.outer(WORLD.features[x], policy()[x] - np.eye(WORLD.A)[a])
        speed = student.momentum * speed - student.rate * slope
        W = W + speed
    return policy()


@pytest.mark.parametrize(
    "student", [LogLinear(steps=3, rate=5.0), LogLinear(3, 5.0, momentum=0.8, ridge=9.0)]
)
def test_the_log_linear_student_takes_gradient_steps_on_the_token_mean_loss(student):
    found = learnt(DATA, student)
    for lane in range(3):
        data = DATA[:, :, lane].astype(float)
        naive = naive_gradient_descent(data, student)
        np.testing.assert_allclose(found[:, :, lane], naive, atol=2e-5)
        np.testing.assert_allclose(student.learn(WORLD.base, WORLD.features, data), naive, atol=2e-5)


def test_both_tabular_students_are_one():
    student = Tabular(kappa=2.0, alpha=0.7)
    found = learnt(DATA, student)
    for lane in range(3):
        own = student.learn(WORLD.base, WORLD.features, DATA[:, :, lane].astype(float))
        np.testing.assert_allclose(found[:, :, lane], own, atol=1e-14)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-12)


def test_half_of_a_context_is_learnt_after_kappa_turns():
    data = np.zeros((*WORLD.base.shape, 1))
    data[5, 2] = 3
    found = learnt(data, Tabular(kappa=3.0))[5, :, 0]
    np.testing.assert_allclose(found, 0.5 * WORLD.base[5] + 0.5 * np.eye(WORLD.A)[2])


def test_no_data_leaves_the_base_student():
    for student in (Tabular(), LogLinear(steps=5)):
        found = learnt(np.zeros((*WORLD.base.shape, 1)), student)[:, :, 0]
        np.testing.assert_allclose(found, WORLD.base, atol=1e-6)


@pytest.mark.parametrize("student", [Tabular(), LogLinear(rate=20.0)])
def test_descendants_dilute_the_loss_of_the_log_linear_student_only(student):
    """The same first repairs, once alone and once with four times as many tokens on other contexts."""
    alone = np.zeros((*WORLD.base.shape, 1))
    first = slice(20, 26)
    alone[first, 1] = 4
    diluted = alone.copy()
    diluted[40:60, 2] = 5
    gain_alone, gain_diluted = (
        (learnt(data, student)[first, 1, 0] - WORLD.base[first, 1]).mean() for data in (alone, diluted)
    )
    assert gain_alone > 0
    if isinstance(student, Tabular):
        assert gain_diluted == pytest.approx(gain_alone)
    else:
        assert gain_diluted < 0.9 * gain_alone


def test_evaluation_of_many_policies_equals_one_at_a_time():
    policies = learnt(DATA, Tabular())
    with double_precision():
        from simulate.pipelines.batched import evaluate as evaluate_many

        many = np.asarray(evaluate_many(jax.device_put(tables_of(WORLD)), policies, WORLD.horizon))
    for lane in range(3):
        own = np.ascontiguousarray(policies[:, :, lane])
        one = WORLD.start @ chances_of(WORLD, own)
        assert many[lane] == pytest.approx(one, abs=1e-12)
