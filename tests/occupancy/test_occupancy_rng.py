import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from occupancy import InputError
from occupancy.kernels import rng

WORDS = st.integers(0, 2**64 - 1)


def test_matches_the_published_splitmix64():
    """First outputs of the reference implementation for the seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [rng.entry(1234567, i) for i in range(4)] == expected


@given(WORDS, st.integers(0, 20), st.integers(0, 5))
def test_is_three_nested_splitmix64_streams(seed, trajectory, draw):
    bits = rng.entry(rng.stream_key(seed, draw), trajectory)
    assert rng.uniform(bits) == naive.uniform_of(seed, trajectory, draw)


@given(seed=WORDS, draw=WORDS, first=WORDS, n=st.integers(1, 9))
def test_same_bits_in_python_numpy_and_numba(seed, draw, first, n):
    from occupancy.kernels import draw as kernels_draw

    python = [rng.bits(seed, draw, (first + i) % 2**64) for i in range(n)]
    out = np.empty(n, np.uint64)
    key = rng.stream_key(seed, draw)
    kernels_draw.fill_bits(kernels_draw.Stream(np.uint64(key), np.uint64(first)), out)
    assert out.tolist() == python
    words = np.array([first], np.uint64) + np.arange(n, dtype=np.uint64)
    array = rng.entry(np.array([key], np.uint64), words)
    assert array.tolist() == python
    assert rng.uniform(array).tolist() == [rng.uniform(word) for word in python]


@given(WORDS)
def test_mix_is_a_bijection_that_spreads_one_bit(z):
    flipped = [rng.mix(z) ^ rng.mix(z ^ (1 << bit)) for bit in range(64)]
    assert all(word for word in flipped)
    assert 1600 < sum(word.bit_count() for word in flipped) < 2500  # 2048 expected of 4096, sd 32


@pytest.mark.parametrize(("seed", "draw"), [(-1, 0), (2**64, 0), (0, -1)])
def test_a_key_outside_64_bits_is_refused(seed, draw):
    with pytest.raises(InputError, match="expected a whole number from 0"):
        rng.bits(seed, draw, 0)
