import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_simulate import random_world, walk

from occupancy.record.errors import InputError
from simulate import answers, family, sample
from simulate.exact.sampling import CHUNK, alias_table


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
@settings(max_examples=20)
def test_alias_tables_hold_the_law(seed, n):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(n, 0.3), 5)
    outcomes = rng.permuted(np.tile(np.arange(n), (5, 1)), axis=1)
    table, _ = alias_table(outcomes, probs)
    odds = np.minimum(table[:, :, 0], 2**32).astype(float) / 2**32
    low, high = (
        (table[:, :, 1] & np.uint64(2**32 - 1)).astype(int),
        (table[:, :, 1] >> np.uint64(32)).astype(int),
    )
    law = np.zeros((5, n))
    for row in range(5):
        np.add.at(law[row], low[row], odds[row] / table.shape[1])
        np.add.at(law[row], high[row], (1 - odds[row]) / table.shape[1])
    np.testing.assert_allclose(np.take_along_axis(law, outcomes, axis=1), probs, atol=1e-8)


@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.integers(2, 7))
@settings(max_examples=15)
def test_the_kernel_plays_what_the_slow_loop_plays(seed, episodes, horizon):
    world = random_world(seed, T=horizon)
    counts, ends = walk(world, world.by_state(world.base), episodes, seed)
    drawn = sample(world, world.base, episodes, seed=seed)
    np.testing.assert_array_equal(drawn.counts, counts)
    np.testing.assert_array_equal(drawn.ends, ends)


@pytest.mark.parametrize("name", ["middle", "garnet"])
def test_sampling_and_dynamic_programming_agree_within_monte_carlo_error(name):
    world = family(name).draw(1)
    exact, n = answers(world), 200_000
    drawn = sample(world, world.base, n, seed=3)
    assert drawn.episodes == n
    assert abs(drawn.J - exact.J_student) < 5 * np.sqrt(exact.J_student * (1 - exact.J_student) / n)
    assert drawn.turns / n == pytest.approx(exact.mean_length, rel=0.01)
    # A context is met at most T_max times an episode, which bounds the variance of its count.
    for found, truth in ((drawn.pooled, exact.pooled), (drawn.per_trajectory, exact.per_trajectory)):
        bound = 5 * np.sqrt(world.horizon * truth / n) + 1e-4
        assert (np.abs(found - truth) < bound).all()
        assert np.abs(found - truth).sum() / 2 < 0.02


def test_the_same_bits_on_one_two_and_five_workers_and_two_seeds_differ():
    world = family("any").draw(2)
    n = 2 * CHUNK + 77
    one, two, five = (sample(world, world.base, n, seed=9, workers=k) for k in (1, 2, 5))
    other = sample(world, world.base, n, seed=10)
    for found in (two, five):
        np.testing.assert_array_equal(one.counts, found.counts)
        np.testing.assert_array_equal(one.ends, found.ends)
    assert (one.counts != other.counts).any()


def test_the_first_episodes_do_not_depend_on_how_many_follow():
    world = random_world(4)
    short, long = (sample(world, world.base, n, seed=1) for n in (300, 301))
    extra = long.counts - short.counts
    assert (long.ends - short.ends).sum() == 1
    assert extra.min() == 0
    T = int(np.flatnonzero(extra.sum(axis=1))[0])
    assert extra.sum() == T


def test_a_policy_over_states_is_played_as_given():
    world = family("middle").draw(0)
    assert pytest.approx(answers(world).J_teacher, abs=0.01) == sample(world, world.teacher, 20_000, seed=0).J
    with pytest.raises(InputError, match="episodes=0"):
        sample(world, world.base, 0, seed=0)
