"""The value of a larger pilot."""

from __future__ import annotations

import itertools
import json

import naive_evsi
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.plan.evsi import Value, evsi
from occupancy.record.errors import InputError

beliefs = st.integers(1, 6).flatmap(lambda n: arrays(float, (20, n), elements=st.floats(0, 1)))


@pytest.mark.parametrize(("ahead", "spread"), [(0.0, 0.02), (0.01, 0.02), (0.05, 0.02)])
@pytest.mark.parametrize("more", [6, 60, 600])
def test_two_gaussian_options_agree_with_the_closed_form(ahead: float, spread: float, more: int) -> None:
    rng = np.random.default_rng(1)
    J = np.column_stack([0.5 + ahead + spread * rng.standard_normal(200_000), np.full(200_000, 0.5)])
    found = evsi(J, tasks=60, task_price=100, most=more).curve[-1]
    assert found.tasks == more
    exact = naive_evsi.two_options(ahead, spread, tasks=60, more=more)
    assert found.value == pytest.approx(exact, abs=2e-4)


def test_many_gaussian_options_agree_with_nested_sampling() -> None:
    rng = np.random.default_rng(2)
    mean = np.array([0.70, 0.71, 0.69, 0.60])
    root = 0.03 * rng.standard_normal((4, 4))
    cov = root @ root.T
    J = rng.multivariate_normal(mean, cov, size=100_000)
    found = evsi(J, tasks=40, task_price=100, most=80).curve[-1].value
    naive = naive_evsi.nested(mean, cov, tasks=40, more=80, draws=200_000, rng=rng)
    assert found == pytest.approx(naive, abs=5e-4)


@given(beliefs, st.integers(1, 200), st.floats(1, 1e4))
def test_between_nothing_and_perfect_information(J: np.ndarray, tasks: int, price: float) -> None:
    found = evsi(J, tasks=tasks, task_price=price)
    values = [size.value for size in found.curve]
    assert all(0 <= value <= found.evpi + 1e-12 for value in values)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))


@given(beliefs, st.floats(0, 1))
def test_worth_nothing_where_one_option_is_never_worse(J: np.ndarray, lead: float) -> None:
    J = np.column_stack([J, J.max(1) + lead])
    found = evsi(J, tasks=40, task_price=10, gain_per_token=1e-9)
    assert found.evpi == pytest.approx(0, abs=1e-12)
    assert found.best_extra_tasks == 0 or found.curve[0].net < 1e-9


def drawn(tasks: int = 60, **given_: float) -> Value:
    rng = np.random.default_rng(3)
    return evsi(0.5 + 0.02 * rng.standard_normal((2000, 5)), tasks=tasks, task_price=500, **given_)


def test_a_larger_pilot_pays_where_information_is_dearer_than_tokens() -> None:
    """By the two prices of 1,000 tokens alone."""
    free, dear = drawn(), drawn(gain_per_token=1e-3)
    assert free.best_extra_tasks == free.curve[-1].tasks
    assert dear.best_extra_tasks == 0
    edge = free.per_1000_tokens / 1000
    assert drawn(gain_per_token=0.99 * edge).best_extra_tasks > 0
    assert drawn(gain_per_token=1.01 * edge).best_extra_tasks == 0


def test_what_tasks_cannot_tell_is_left_out() -> None:
    rng = np.random.default_rng(4)
    kappa, own = rng.standard_normal(4000), 0.01 * rng.standard_normal((4000, 2))
    tilt = 0.05 * np.column_stack([kappa + 0.3 * kappa**2, -kappa])
    alone = evsi(0.5 + own, tasks=60, task_price=500)
    told = evsi(0.5 + own + tilt, tasks=60, task_price=500, unresolved=kappa[:, None])
    blind = evsi(0.5 + own + tilt, tasks=60, task_price=500)
    assert blind.evpi > 3 * alone.evpi
    assert told.evpi < 1.5 * alone.evpi


def test_json_is_plain() -> None:
    assert json.loads(json.dumps(drawn().to_dict()))["evpi"] > 0


@pytest.mark.parametrize(
    ("J", "numbers"),
    [
        (np.zeros((5, 2)), {}),
        (np.full((20, 2), np.nan), {}),
        (np.zeros((20, 2)), {"tasks": 0}),
        (np.zeros((20, 2)), {"task_price": 0.0}),
        (np.zeros((20, 2)), {"gain_per_token": -1.0}),
    ],
)
def test_impossible_questions_are_refused(J: np.ndarray, numbers: dict[str, float]) -> None:
    with pytest.raises(InputError, match="expected"):
        evsi(J, **{"tasks": 40, "task_price": 100.0, **numbers})
