"""The same bits on any number of workers and from numpy or compiled kernels."""

import math
from fractions import Fraction

import naive
import numpy as np
import pytest
from conftest import INTERPRETED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import batches

from occupancy import (
    CONVENTIONS,
    DataError,
    InputError,
    Tally,
    Trajectories,
    mean,
    occupancy,
    tally,
)
from occupancy.kernels import chunks, small
from occupancy.kernels import sums as kernels
from occupancy.kernels.columns import Turns, Weights
from occupancy.kernels.fixed_point import carry
from occupancy.statistics import estimate

PATCHED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def bits(found) -> list[bytes]:
    return [v.tobytes() if isinstance(v, np.ndarray) else repr(v).encode() for v in vars(found).values()]


@pytest.fixture
def tiny_chunks(monkeypatch):
    monkeypatch.setattr("occupancy.statistics.estimate.block_turns", lambda n_states: 2)
    for module in ("estimate", "exact", "spread", "clusters", "tallies"):
        monkeypatch.setattr(f"occupancy.statistics.{module}.chunk_turns", lambda n_states: 3)


@settings(PATCHED, max_examples=10)
@given(batch=batches(features=1), convention=st.sampled_from(CONVENTIONS))
def test_workers_do_not_change_a_bit(tiny_chunks, batch, convention):
    for compute in (
        lambda n: occupancy(batch, convention=convention, workers=n),
        lambda n: mean(batch, convention=convention, workers=n),
        lambda n: tally(batch, workers=n),
    ):
        one = bits(compute(1))
        assert bits(compute(2)) == one
        assert bits(compute(5)) == one


@PATCHED
@given(batch=batches(features=2), convention=st.sampled_from(CONVENTIONS))
def test_numpy_and_compiled_kernels_give_the_same_bits(tiny_chunks, batch, convention):
    found = []
    for module in (small, kernels):
        with pytest.MonkeyPatch.context() as patch:
            for user in ("estimate", "exact", "spread", "clusters", "tallies"):
                patch.setattr(f"occupancy.statistics.{user}.kernels_for", lambda n, module=module: module)
            found.append(
                bits(occupancy(batch, convention=convention))
                + bits(mean(batch, convention=convention))
                + bits(tally(batch))
            )
    assert found[0] == found[1]


@given(batches(), st.integers(1, 9))
def test_chunks_are_whole_trajectories_in_order(batch, size):
    edges = chunks.cuts(batch.offsets, size)
    assert edges[0] == 0
    assert edges[-1] == len(batch)
    assert (np.diff(edges) > 0).all()
    turns = np.diff(batch.offsets[edges])
    assert (turns < size + batch.lengths.max()).all()


@given(batches())
def test_a_tally_is_both_occupancies(batch):
    found = tally(batch)
    for convention, probability in (("pooled", found.pooled), ("trajectory", found.trajectory)):
        exact = naive.occupancy(batch, naive.context_weights(batch, convention))
        assert probability == pytest.approx([float(p) for p in exact], rel=1e-12)


@pytest.mark.parametrize("S", [3, kernels.PAIRED_STATES + 1])
def test_lengths_above_and_below_what_kernels_write_out_give_the_same_sums(S):
    """Long trajectories between short and empty ones, in buffers and pairs of words that fill up."""
    lengths = np.tile([0, 1, 63, 64, 65, 0, 7, 255, 256, 300, 64], 9)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = (np.arange(offsets[-1]) % S).astype(np.int32)
    tables = np.zeros((2, S, 3), np.int64)
    for module, table in zip((small, kernels), tables, strict=True):
        module.tally(Turns(offsets, states), table)
    (few, counted), words = tables[:, :, 0], [carry(table[:, 1], table[:, 2]) for table in tables]
    assert few.tolist() == counted.tolist() == np.bincount(states, minlength=S).tolist()
    assert np.array_equal(words[0], words[1])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_a_total_keeps_what_rounding_lost(parts):
    total = chunks.Total(1)
    for part in (1e16, *parts, -1e16):
        total.add(np.array([part]))
    assert total.value[0] == pytest.approx(math.fsum(parts), rel=1e-12, abs=1e-9)


def test_a_single_bin_is_exact_on_any_number_of_threads():
    N, T = 10_000 if INTERPRETED else 10_000_000, 10
    weights = np.full(N, 0.1, np.float32)
    batch = Trajectories(
        np.arange(0, N + 1, T), np.zeros(N, np.int32), np.arange(N // T) % 97, weights=weights
    )
    for workers in range(1, 17):
        found = tally(batch, workers=workers)
        assert found.counts.tolist() == [N]
        assert found.trajectory.tolist() == found.pooled.tolist() == [1.0]
        sums = estimate.weighted_sums(batch, Weights(np.empty(0), weights), workers)
        assert abs(Fraction(float(sums[0])) / (N * Fraction(float(weights[0]))) - 1) < Fraction(1, 10**12)
    assert occupancy(batch, convention="pooled").standard_error.tolist() == [0.0]


@given(batches(), st.data())
def test_the_tally_of_a_whole_is_the_sum_of_its_parts(batch, data):
    cut = data.draw(st.integers(0, len(batch)))
    edge = int(batch.offsets[cut])
    parts = [
        Trajectories(offsets, states, tasks, n_states=batch.n_states)
        for offsets, states, tasks in (
            (batch.offsets[: cut + 1], batch.states[:edge], batch.tasks[:cut]),
            (batch.offsets[cut:] - edge, batch.states[edge:], batch.tasks[cut:]),
        )
        if len(states)
    ]
    whole, summed = tally(batch), tally(parts[0])
    for part in parts[1:]:
        summed += tally(part)
    assert summed.counts.tolist() == whole.counts.tolist()
    assert summed.inverse_lengths.tolist() == whole.inverse_lengths.tolist()


def test_a_tally_that_64_bits_cannot_hold_is_refused():
    half = Tally(np.array([1, 1]), np.array([0, 1 << 62]), np.array([0, 0]), 1, 0)
    with pytest.raises(DataError, match="in state 1: more than 64 bits hold"):
        half + half


def test_a_number_of_workers_below_one_is_refused():
    with pytest.raises(InputError, match="workers=0: expected at least 1"):
        tally(Trajectories([0, 1], [0], [0]), workers=0)
