import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches

from occupancy import (
    DISTANCES,
    DataError,
    InputError,
    Trajectories,
    chi_square,
    compare,
    coverage,
    jensen_shannon,
    missing_mass,
    occupancy,
    occupancy_by_turn,
    total_variation,
)

LAWS = st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda p: sum(p) > 0.1)


def one_turn(values, tasks, states=None) -> Trajectories:
    n = len(values)
    return Trajectories(
        np.arange(n + 1), np.zeros(n, int) if states is None else states, tasks, n_states=9, features=values
    )


@given(LAWS, LAWS)
def test_distances_have_their_bounds(p, q):
    p, q = np.array(p) / sum(p), np.array(q) / sum(q)
    for distance, most in ((total_variation, 1), (jensen_shannon, math.log(2)), (chi_square, 2)):
        assert distance(p, p) == 0
        assert 0 <= distance(p, q) <= most * (1 + 1e-9)
        assert distance(p, q) == pytest.approx(distance(q, p))
    tv = total_variation(p, q)
    assert 2 * tv**2 <= chi_square(p, q) + 1e-12 <= 2 * tv + 1e-9  # Le Cam
    assert total_variation(np.array([1.0, 0]), np.array([0, 1.0])) == 1


@given(batches(), batches(), st.sampled_from(["pooled", "trajectory", "task", "weights"]))
def test_compare_measures_the_occupancies(a, b, convention):
    S = max(a.n_states, b.n_states)
    p, q = (np.pad(occupancy(t, convention=convention).probability, (0, S - t.n_states)) for t in (a, b))
    found = compare(a, b, convention=convention, permutations=3)
    assert found.value == pytest.approx(total_variation(p, q), abs=1e-12)
    assert 0.25 <= found.p_value <= 1
    assert 2 * found.n_paired + found.n_single == len(np.unique(a.tasks)) + len(np.unique(b.tasks))


def test_energy_distance_is_exact_on_a_line():
    """Two laws on few points: 2 E|x - y| - E|x - x'| - E|y - y'| by all pairs."""
    x, y = np.array([0.0, 1, 1, 5]), np.array([2.0, 2, 7])
    pairs = [np.abs(u[:, None] - v).mean() for u, v in ((x, y), (x, x), (y, y))]
    found = compare(
        one_turn(x, range(4)),
        one_turn(y, range(4, 7)),
        convention="pooled",
        distance="energy",
        permutations=1,
    )
    assert found.value == pytest.approx(2 * pairs[0] - pairs[1] - pairs[2], rel=1e-6)


@pytest.mark.parametrize("distance", ["energy", "mmd"])
def test_distances_of_embeddings_are_near_those_of_all_pairs(distance):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(300, 3)), random.normal([1.0, 0, 0], size=(300, 3))
    if distance == "energy":
        kernel = lambda u, v: -np.linalg.norm(u[:, None] - v, axis=2)  # noqa: E731
        tolerance = 0.15
    else:
        both = np.concatenate([x, y])
        width = np.median(np.linalg.norm(both[:, None] - both, axis=2))
        kernel = lambda u, v: np.exp(-(np.linalg.norm(u[:, None] - v, axis=2) ** 2) / 2 / width**2)  # noqa: E731
        tolerance = 0.25
    exact = kernel(x, x).mean() + kernel(y, y).mean() - 2 * kernel(x, y).mean()
    a, b = one_turn(x, np.arange(300)), one_turn(y, np.arange(300, 600))
    found = compare(a, b, convention="pooled", distance=distance, permutations=99)
    assert found.value == pytest.approx(exact, rel=tolerance)
    assert found.p_value == 0.01


@pytest.mark.parametrize("distance", DISTANCES)
def test_p_values_are_uniform_when_nothing_differs(distance):
    """Tasks are strongly clustered: a test that shuffled turns would reject nearly always."""
    p_values = []
    for seed in range(40):
        random = np.random.default_rng(seed)
        level = random.normal(size=20)
        parts = []
        for tasks in (np.arange(10), np.arange(10, 20)):
            owner = np.repeat(tasks, 20)
            values = level[owner] + 0.1 * random.normal(size=len(owner))
            parts.append(one_turn(values, owner, np.clip(values * 2 + 4, 0, 8).astype(int)))
        p_values.append(
            compare(*parts, convention="pooled", distance=distance, permutations=39, seed=seed).p_value
        )
    assert sum(p <= 0.1 for p in p_values) <= 11  # binomial(40, 0.1) passes 11 once in 3,000
    assert sum(p <= 0.5 for p in p_values) >= 8


def test_a_task_in_both_batches_is_swapped_not_shuffled():
    random = np.random.default_rng(1)
    level, tasks = random.normal(size=30) * 10, np.arange(30)
    same, others = (
        compare(one_turn(level, tasks), one_turn(level + 0.5, of), convention="pooled", distance="energy")
        for of in (tasks, tasks + 30)
    )
    assert (same.n_paired, same.n_single) == (30, 0)
    assert (others.n_paired, others.n_single) == (0, 60)
    assert same.p_value < 0.01
    assert others.p_value > 0.9, "tasks differ by more than the shift"


BARE = Trajectories([0, 1], [0], [0])


def test_what_cannot_be_compared_is_refused():
    a = one_turn([1.0], [0])
    with pytest.raises(DataError, match="1 and 2 columns"):
        compare(a, one_turn([[1.0, 2.0]], [0]), convention="pooled")
    with pytest.raises(DataError, match="needs features"):
        compare(BARE, BARE, convention="pooled", distance="mmd")
    with pytest.raises(DataError, match="batch b has no context with weight"):
        compare(a, Trajectories([0, 0], [], [0], features=np.empty(0)), convention="pooled")
    with pytest.raises(InputError, match="distance='kl'"):
        compare(a, a, convention="pooled", distance="kl")


@given(batches())
def test_by_turn_counts_every_turn_once(batch):
    found = occupancy_by_turn(batch)
    assert found.counts.sum(axis=1).tolist() == found.alive.tolist()
    assert found.counts.sum(axis=0).tolist() == np.bincount(batch.states, minlength=batch.n_states).tolist()
    assert found.alive.tolist() == [
        int((batch.lengths >= t).sum()) for t in range(1, batch.lengths.max() + 1)
    ]
    assert occupancy_by_turn(batch, turns=1).counts[0].tolist() == found.counts[0].tolist()


def test_by_turn_example():
    batch = Trajectories([0, 2, 2, 3], [1, 0, 1], [0, 0, 1])
    found = occupancy_by_turn(batch, turns=3)
    assert found.counts.tolist() == [[0, 2], [1, 0], [0, 0]]
    assert found.alive.tolist() == [2, 1, 0]
    assert found.probability.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_missing_mass_and_coverage_example():
    """Task 0 visits states 0, 0, 1 and task 1 visits 1, 2: states 0 and 2 have been seen by one task."""
    batch = Trajectories([0, 3, 5], [0, 0, 1, 1, 2], [0, 1], n_states=4)
    found = missing_mass(batch, convention="pooled")
    assert float(found.by_task.value) == pytest.approx(3 / 5)
    assert (found.by_turn, found.singletons) == (1 / 5, 1)
    covered = coverage(batch, [1, 1, 99], convention="trajectory")
    assert float(covered.value) == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert float(coverage(batch, [], convention="pooled").value) == 0
    with pytest.raises(DataError, match="expected state ids"):
        coverage(batch, [-1], convention="pooled")


@pytest.mark.parametrize("distance", ["mmd", "energy"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_no_numbers_have_no_p_value(distance, bad):
    batches = [Trajectories([0, 1, 2], [0, 0], [0, 1], features=[1, last]) for last in (2, bad)]
    with pytest.raises(DataError, match=f"features of turn 3 are \\[{bad}\\]: expected finite numbers"):
        compare(*batches, convention="pooled", distance=distance)


def test_a_turn_without_weight_visits_nothing():
    """Task 1 passes through state 0 with weight 0: what is left is the batch without that turn."""
    weighted = Trajectories([0, 1, 3], [0, 0, 1], [0, 1], weights=[1, 0, 1])
    without = Trajectories([0, 1, 2], [0, 1], [0, 1])
    found, expected = missing_mass(weighted, convention="weights"), missing_mass(without, convention="pooled")
    assert float(found.by_task.value) == float(expected.by_task.value) == 1
    assert (found.by_turn, found.singletons) == (expected.by_turn, expected.singletons) == (1, 2)
