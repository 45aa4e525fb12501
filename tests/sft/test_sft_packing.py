"""Packing neither loses, nor mixes, nor reweights rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import random_rows

from occupancy.record.errors import DataError
from sft.packing import (
    EVEN,
    PAD,
    batches,
    dealt,
    even_bins,
    first_fit_decreasing,
    make_batch,
    make_pack,
)


def naive_first_fit(lengths: list[int], capacity: int) -> list[list[int]]:
    bins: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for b in bins:
            if sum(lengths[k] for k in b) + lengths[i] <= capacity:
                b.append(i)
                break
        else:
            bins.append([i])
    return bins


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_first_fit_decreasing_is_what_its_name_says(lengths: list[int], capacity: int) -> None:
    assert first_fit_decreasing(lengths, capacity) == naive_first_fit(lengths, capacity)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(50, 300), st.integers(1, 4))
def test_even_bins_are_no_more_than_needed(lengths: list[int], capacity: int, world: int) -> None:
    bins = even_bins(lengths, capacity, world=world)
    assert sorted(i for b in bins for i in b) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in b) <= capacity for b in bins)
    fewest = len(first_fit_decreasing(lengths, capacity))
    assert len(bins) <= -(-fewest // world) * world


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(50, 300), st.integers(1, 4))
def test_every_gpu_has_about_the_same_work(lengths: list[int], capacity: int, world: int) -> None:
    bins = dealt(even_bins(lengths, capacity, world=world), lengths, world=world)
    assert sorted(i for b in bins for i in b) == list(range(len(lengths)))
    assert len(bins) % world == 0
    work = [sum(lengths[i] * (lengths[i] + EVEN) for i in b) for b in bins]
    shares = [sum(work[rank::world]) for rank in range(world)]
    assert max(shares) - min(shares) <= max(work)


def test_a_row_longer_than_a_pack_is_refused() -> None:
    with pytest.raises(DataError, match="51 ids, but a pack takes 50"):
        first_fit_decreasing([3, 51], 50)


@given(st.integers(0, 99), st.integers(0, 100))
def test_a_pack_keeps_each_document_apart(seed: int, pad_to: int) -> None:
    rows = random_rows(5, seed=seed)
    index = [3, 0, 4]
    pack = make_pack(rows, index, pad_to=pad_to)
    for d, i in enumerate(index):
        a, b = pack.bounds[d], pack.bounds[d + 1]
        own = slice(rows.offsets[i], rows.offsets[i + 1])
        assert pack.ids[a:b].tolist() == rows.ids[own].tolist()
        assert pack.positions[a:b].tolist() == list(range(b - a))
        inside = (pack.source >= a) & (pack.source + 1 < b)
        assert (pack.source[inside] + 1 - a).tolist() == np.flatnonzero(rows.targets[own]).tolist()
        assert pack.labels[inside].tolist() == rows.ids[own][rows.targets[own]].tolist()
        assert pack.depth[inside].tolist() == rows.depth[own][rows.targets[own]].tolist()
    assert len(pack.labels) == int(rows.target_counts[index].sum())
    assert len(pack.ids) == max(pad_to, int(rows.lengths[index].sum())) == int(pack.bounds[-1])


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 9), st.booleans())
def test_an_epoch_has_every_row_once_on_any_number_of_gpus(world: int, n: int, batch: int, pad: bool) -> None:
    rows = random_rows(n, seed=n)
    steps = list(batches(rows, batch=batch, capacity=64, seed=1, epoch=2, world=world, pad=pad))
    assert len(steps) == -(-n // batch)
    assert sum(s.ids for s in steps) == len(rows.ids)
    seen = np.concatenate([p.labels for s in steps for r in range(world) for p in s.of_rank(r, world)])
    assert np.array_equal(np.sort(seen), np.sort(rows.ids[rows.targets]))
    for step in steps:
        assert len({len(step.of_rank(r, world)) for r in range(world)}) == 1
        assert step.targets == sum(len(p.labels) for p in step.packs) > 0
        assert not pad or {len(p.ids) for p in step.packs} == {PAD}
    again = list(batches(rows, batch=batch, capacity=64, seed=1, epoch=2, world=1))
    assert [s.targets for s in again] == [s.targets for s in steps]


def test_a_row_without_targets_cannot_be_made() -> None:
    rows = random_rows(3)
    rows.targets[rows.offsets[1] : rows.offsets[2]] = False
    with pytest.raises(DataError, match="row 1 has no target"):
        rows.take([0, 1, 2])


def test_a_batch_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no target"):
        make_batch(random_rows(2), [], capacity=64)
