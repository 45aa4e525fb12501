import re
from fractions import Fraction

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches, filters

from occupancy import CONVENTIONS, DataError, InputError, Trajectories, cluster_sums, mean, occupancy, ratio
from occupancy.statistics.clusters import variance_of_sum

CLOSE = {"rel": 1e-12, "abs": 1e-14}


def floats(values):
    return [float(v) for v in values]


@given(batches(), st.sampled_from(CONVENTIONS), st.data())
def test_occupancy_equals_its_exact_twin(batch, convention, data):
    psi, p_phi = data.draw(st.one_of(st.just((None, None)), filters(batch)))
    weights = naive.context_weights(batch, convention, psi, p_phi)
    if not sum(weights):
        with pytest.raises(DataError, match="no context has weight"):
            occupancy(batch, convention=convention, psi=psi, p_phi=p_phi)
        return
    found = occupancy(batch, convention=convention, psi=psi, p_phi=p_phi)
    assert found.probability == pytest.approx(floats(naive.occupancy(batch, weights)), **CLOSE)
    assert found.ess == pytest.approx(float(naive.ess(weights)), rel=1e-12)
    assert (found.n_empty, found.n_trajectories) == (batch.n_empty, len(batch))
    for s in range(batch.n_states):
        inside = [Fraction(int(state == s)) for state in batch.states]
        _, variance = naive.ratio_and_variance(batch, weights, inside)
        if variance is None:
            assert found.standard_error is None
            assert found.n_tasks == 1
        else:
            assert found.standard_error[s] ** 2 == pytest.approx(float(variance), rel=1e-9, abs=1e-24)


@given(batches(features=2), st.sampled_from(CONVENTIONS), st.data())
def test_mean_equals_its_exact_twin(batch, convention, data):
    psi, p_phi = data.draw(st.one_of(st.just((None, None)), filters(batch)))
    weights = naive.context_weights(batch, convention, psi, p_phi)
    if not sum(weights):
        return
    found = mean(batch, convention=convention, psi=psi, p_phi=p_phi)
    assert found.ess == pytest.approx(float(naive.ess(weights)), rel=1e-12)
    for d in range(2):
        values = [Fraction(float(v)) for v in batch.features[:, d]]
        R, variance = naive.ratio_and_variance(batch, weights, values)
        assert found.value[d] == pytest.approx(float(R), **CLOSE)
        if variance is None:
            assert found.standard_error is None
        else:
            assert found.standard_error[d] ** 2 == pytest.approx(float(variance), rel=1e-9, abs=1e-24)


@given(batches(), st.randoms(use_true_random=False))
def test_the_order_of_trajectories_does_not_matter(batch, random):
    order = random.sample(range(len(batch)), len(batch))
    rows = np.concatenate([np.arange(batch.offsets[b], batch.offsets[b + 1]) for b in order])
    shuffled = Trajectories(
        np.concatenate([[0], np.cumsum(batch.lengths[order])]),
        batch.states[rows],
        batch.tasks[order],
        n_states=batch.n_states,
        weights=batch.weights[rows],
    )
    for convention in CONVENTIONS:
        one, other = occupancy(batch, convention=convention), occupancy(shuffled, convention=convention)
        assert one.probability == pytest.approx(other.probability, **CLOSE)
        assert one.n_tasks == other.n_tasks


@given(batches(features=2), st.sampled_from(CONVENTIONS))
def test_a_ratio_of_features_equals_its_exact_twin(batch, convention):
    """Dividing by feature 1 is weighting by it: A_q sums w f_0 and B_q sums w f_1."""
    weights = naive.context_weights(batch, convention)
    f, g = ([Fraction(float(v)) for v in column] for column in batch.features.T)
    sums = cluster_sums(batch, convention=convention)
    over = [w * b for w, b in zip(weights, g, strict=True)]
    if not sum(over):
        with pytest.raises(DataError, match="feature 1 sums to zero"):
            ratio(sums, over=1)
        return
    found = ratio(sums, over=1)
    R = sum(w * a for w, a in zip(weights, f, strict=True)) / sum(over)
    assert found.value == pytest.approx([float(R), 1.0], rel=1e-12)
    if found.standard_error is not None:
        A, B = {}, {}
        for b, _, i in naive.turns(batch):
            q = int(batch.tasks[b])
            A[q], B[q] = A.get(q, 0) + weights[i] * f[i], B.get(q, 0) + over[i]
        C = sum(b != 0 for b in B.values())
        variance = Fraction(C, C - 1) * sum((A[q] - R * B[q]) ** 2 for q in A) / sum(over) ** 2
        assert found.standard_error[0] ** 2 == pytest.approx(float(variance), rel=1e-9, abs=1e-24)


def test_a_worked_example():
    """Two tasks: one trajectory of states 0, 1, 1 and one of state 0; an empty one joins the second task."""
    batch = Trajectories([0, 3, 3, 4], [0, 1, 1, 0], [4, 8, 8], features=[[1.0], [2.0], [3.0], [4.0]])
    assert occupancy(batch, convention="pooled").probability.tolist() == [0.5, 0.5]
    found = occupancy(batch, convention="trajectory")
    assert found.probability == pytest.approx([2 / 3, 1 / 3])
    assert found.standard_error == pytest.approx([1 / 3, 1 / 3])  # sqrt(2/1 * 2 * (1/3)^2) / 2
    assert (found.n_tasks, found.n_trajectories, found.n_empty) == (2, 3, 1)
    assert mean(batch, convention="task").value == pytest.approx([3.0])


def test_a_mean_of_plain_features_has_no_axis():
    batch = Trajectories([0, 1, 3], [0, 0, 0], [0, 1], features=[1, 2, 3])
    found = mean(batch, convention="trajectory")
    assert found.value.shape == found.standard_error.shape == ()
    assert float(found.value) == 1.75


PLAIN = Trajectories([0, 1, 3], [0, 0, 1], [0, 1], weights=[0, 0, 0], features=[0, np.nan, 1])
BAD = [
    ({"convention": "pool"}, InputError, "convention='pool': expected one of pooled, trajectory"),
    ({"convention": "weights"}, DataError, "no context has weight: 2 trajectories, 0 of them empty"),
    ({"convention": "pooled", "psi": [0, 0]}, DataError, "no context has weight"),
    ({"convention": "pooled", "psi": [1]}, DataError, "psi has shape (1,) for 2 trajectories"),
    ({"convention": "pooled", "psi": [1, 0.5]}, DataError, "psi holds 0.5: expected 0 or 1"),
    ({"convention": "pooled", "p_phi": [0, 1, 1.5]}, DataError, "p_phi holds 1.5 at 2"),
    ({"convention": "pooled", "p_phi": [0, np.nan, 1]}, DataError, "p_phi holds nan at 1"),
    ({"convention": "pooled", "p_phi": ["a", "b", "c"]}, DataError, "p_phi has type <U1"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD)
def test_what_has_no_answer_is_refused(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        occupancy(PLAIN, **arguments)


def test_a_batch_must_hold_what_is_asked_for():
    bare = Trajectories([0, 1], [0], [0])
    with pytest.raises(DataError, match="without weights"):
        occupancy(bare, convention="weights")
    with pytest.raises(DataError, match="without features"):
        mean(bare, convention="pooled")
    with pytest.raises(DataError, match=re.escape("features of turn 1 are [nan]")):
        mean(PLAIN, convention="pooled")
    with pytest.raises(DataError, match="1 trajectories, 1 of them empty"):
        occupancy(Trajectories([0, 0], [], [0]), convention="pooled")


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64, np.int64])
def test_the_type_of_the_offsets_does_not_matter(dtype):
    batch = Trajectories(np.array([0, 2, 2, 3], dtype), [0, 1, 1], [0, 0, 1])
    assert occupancy(batch, convention="trajectory").probability.tolist() == [0.25, 0.75]


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_numbers_that_float32_cannot_hold_are_averaged_exactly(dtype):
    features = np.array([16_777_217, 16_777_217, 16_777_217], dtype)
    batch = Trajectories([0, 2, 3], [0, 0, 0], [0, 1], features=features, weights=[1e99, 0.0, 1e99])
    assert float(mean(batch, convention="pooled").value) == 16_777_217
    assert batch.weights.tolist() == [1e99, 0.0, 1e99]


def test_numbers_that_no_float_holds_are_refused():
    with pytest.raises(DataError, match=f"features hold {2**63 - 1}, which no float64 equals"):
        Trajectories([0, 1], [0], [0], features=[2**63 - 1])
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(DataError, match="expected a finite number >= 0"):
            Trajectories([0, 1], [0], [0], weights=[bad])
    for bad in (1e300, 1e-300):
        with pytest.raises(DataError, match="only ratios of weights count"):
            Trajectories([0, 1], [0], [0], weights=[bad])


@pytest.mark.parametrize(("within", "between"), [(1.0, 0.0), (0.0, 1.0), (0.5, 2.0)])
def test_values_of_one_cluster_are_alike_in_a_new_sum_too(within, between):
    rng = np.random.default_rng(0)

    def drawn(clusters, each):
        own = rng.normal(0, between, (clusters, 1)) + rng.normal(0, within, (clusters, each))
        return own.ravel(), np.repeat(np.arange(clusters), each)

    values, cluster = drawn(4000, 3)
    exact = np.var([drawn(20, 5)[0].sum() for _ in range(4000)])
    found = variance_of_sum(values, cluster=cluster, count=100, n_clusters=20)
    assert found == pytest.approx(exact, rel=0.1)
    alone = variance_of_sum(values[::3], cluster=cluster[::3], count=100, n_clusters=20)
    assert alone == pytest.approx(20 * 5**2 * (within**2 + between**2), rel=0.1)
