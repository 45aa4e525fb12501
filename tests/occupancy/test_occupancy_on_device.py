"""The JAX estimators agree with the others to 1e-6, inside jit and at the default precision."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import filters

from occupancy import CONVENTIONS, DataError, InputError, Trajectories, mean, occupancy

jax = pytest.importorskip("jax")
on_device = pytest.importorskip("occupancy.statistics.on_device")


def columns(batch):
    return (
        jax.numpy.asarray(batch.offsets.astype(np.int32)),
        jax.numpy.asarray(batch.states),
        jax.numpy.asarray(batch.tasks),
    )


def agree(found, value, standard_error, n_tasks, ess):
    assert np.asarray(found.value) == pytest.approx(value, rel=1e-6, abs=1e-12)
    if standard_error is None:
        assert np.isnan(np.asarray(found.standard_error)).all()
    else:
        assert np.asarray(found.standard_error) == pytest.approx(standard_error, rel=1e-6, abs=1e-8)
    assert int(found.n_tasks) == n_tasks
    assert float(found.ess) == pytest.approx(ess, rel=1e-6)


B, N, S, Q = 8, 20, 4, 5
COMPILED = {}


def compiled(name, convention):
    """One compilation a convention: every example has the same shapes."""
    if (name, convention) not in COMPILED:
        sizes = {"n_states": S, "n_tasks": Q} if name == "occupancy" else {"n_tasks": Q}
        function = partial(getattr(on_device, name), convention=convention, **sizes)
        COMPILED[name, convention] = jax.jit(function)
    return COMPILED[name, convention]


@st.composite
def same_shape(draw) -> Trajectories:
    """N turns cut into B trajectories anywhere, so some are empty."""
    edges = sorted(draw(st.lists(st.integers(0, N), min_size=B - 1, max_size=B - 1)))
    ids = [draw(st.lists(st.integers(0, top - 1), min_size=n, max_size=n)) for top, n in ((S, N), (Q, B))]
    values = draw(st.lists(st.integers(0, 9), min_size=3 * N, max_size=3 * N))
    columns = np.array(values).reshape(N, 3)
    return Trajectories([0, *edges, N], *ids, n_states=S, features=columns[:, :2], weights=columns[:, 2] / 4)


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(batch=same_shape(), data=st.data())
def test_agrees_with_the_other_backends_inside_jit(convention, batch, data):
    psi, p_phi = data.draw(filters(batch))
    how = {"psi": psi, "p_phi": p_phi}
    try:
        expected, average = (f(batch, convention=convention, **how) for f in (occupancy, mean))
    except DataError:
        return
    offsets, states, tasks = columns(batch)
    on = {"weights": batch.weights, **how}
    found = compiled("occupancy", convention)(offsets, states, tasks, **on)
    agree(found, expected.probability, expected.standard_error, expected.n_tasks, expected.ess)
    found = compiled("mean", convention)(offsets, jax.numpy.asarray(batch.features), tasks, **on)
    agree(found, average.value, average.standard_error, average.n_tasks, average.ess)


@pytest.mark.parametrize("convention", ["trajectory"])
def test_runs_inside_jit_on_a_batch_whose_sums_float32_cannot_hold(convention):
    random = np.random.default_rng(0)
    lengths = random.integers(0, 40, 6_000)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = np.minimum(random.geometric(0.7, offsets[-1]) - 1, 6)
    batch = Trajectories(offsets, states, random.integers(0, 300, 6_000), n_states=7)
    expected = occupancy(batch, convention=convention)
    inside = jax.jit(partial(on_device.occupancy, n_states=7, n_tasks=300, convention=convention))
    found = inside(*columns(batch))
    agree(found, expected.probability, expected.standard_error, expected.n_tasks, expected.ess)
    assert found.value.dtype == np.float32
    twice = jax.jit(lambda *arrays: inside(*arrays).value.sum() * 2)(*columns(batch))
    assert float(twice) == pytest.approx(2, rel=1e-6)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_batch_of_empty_trajectories_has_no_estimate(convention):
    offsets, states, tasks = columns(Trajectories([0, 0, 0], [], [0, 1], n_states=3))
    weights = jax.numpy.zeros(0)
    found = on_device.occupancy(
        offsets, states, tasks, n_states=3, n_tasks=2, convention=convention, weights=weights
    )
    assert found.value.shape == (3,)
    assert np.isnan(np.asarray(found.value)).all()
    assert int(found.n_tasks) == 0
    found = on_device.mean(offsets, weights, tasks, n_tasks=2, convention=convention, weights=weights)
    assert np.isnan(float(found.value))


def test_a_feature_without_an_axis_has_a_mean_without_one():
    batch = Trajectories([0, 2, 3], [0, 0, 0], [0, 1], features=[1.0, 2.0, 6.0])
    expected = mean(batch, convention="pooled")
    offsets, _, tasks = columns(batch)
    found = on_device.mean(offsets, jax.numpy.asarray(batch.features), tasks, n_tasks=2, convention="pooled")
    assert found.value.shape == ()
    agree(found, float(expected.value), float(expected.standard_error), 2, expected.ess)


def test_a_wrong_convention_is_refused_while_tracing():
    one = columns(Trajectories([0, 1], [0], [0]))
    with pytest.raises(InputError, match="convention='uniform'"):
        on_device.occupancy(*one, n_states=1, n_tasks=1, convention="uniform")
    with pytest.raises(DataError, match="without weights"):
        on_device.occupancy(*one, n_states=1, n_tasks=1, convention="weights")
