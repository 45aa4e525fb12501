import math

import numpy as np
import pytest
from conftest import INTERPRETED
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches

from occupancy import (
    ClusterSums,
    DataError,
    InputError,
    bootstrap,
    cluster_sums,
    convert,
    ratio,
)
from occupancy.kernels import resample as kernels_resample
from occupancy.kernels import rng

Q = 200 if INTERPRETED else 5000


def sums_of(n: int, seed: int = 0) -> ClusterSums:
    random = np.random.default_rng(seed)
    B = random.integers(1, 30, n).astype(float)
    return ClusterSums(np.column_stack([B, random.random(n) * B]), B, np.arange(n), float(B.sum()))


def poisson_quantiles() -> list[int]:
    total, quantiles = 0.0, []
    for k in range(12):
        total += math.exp(-1) / math.factorial(k)
        quantiles.append(round(total * 2**32))
    return quantiles


def naive_weights(key: int, block: int, clusters: int) -> np.ndarray:
    """[clusters, BLOCK] Poisson counts, one word for each pair of replicates."""
    half = kernels_resample.BLOCK // 2
    counts = np.zeros((clusters, 2 * half))
    for q in range(clusters):
        for j in range(half):
            word = rng.entry(rng.entry(key, q), block * half + j)
            for r, u in ((j, word & 0xFFFFFFFF), (half + j, word >> 32)):
                counts[q, r] = sum(u >= c for c in poisson_quantiles())
    return counts


def test_poisson_sums_equal_the_naive_ones():
    sums = np.column_stack([sums_of(7).numerators, sums_of(7).denominators])
    out = np.zeros((3, kernels_resample.BLOCK))
    kernels_resample.poisson_block(sums, np.uint64(77), np.uint64(3), out)
    assert out == pytest.approx(sums.T @ naive_weights(77, 3, 7), rel=1e-12)


def test_gathered_rows_are_rows():
    """Rows are powers of a base, so that each replicate's sum tells how often each row was drawn."""
    base, n = 1000.0, 4
    out = np.zeros((1, kernels_resample.BLOCK))
    kernels_resample.gather_block(base ** np.arange(n)[:, None], np.uint64(5), np.uint64(0), out)
    digits = [[int(total // base**k % base) for k in range(n)] for total in out[0]]
    assert all(sum(row) == n for row in digits)
    assert len({tuple(row) for row in digits}) > 20


@pytest.mark.parametrize("scheme", ["poisson", "gather"])
def test_bootstrap_agrees_with_the_delta_method(scheme):
    """The standard deviation of 800 replicates is within 4 of its own standard errors, 1/sqrt(1600)."""
    sums = sums_of(Q)
    found, delta = bootstrap(sums, seed=1, replicates=800, scheme=scheme), ratio(sums).standard_error
    assert found.values[:, 0].tolist() == [1.0] * 800
    assert found.standard_error[1] / delta[1] == pytest.approx(1, abs=0.1)
    low, high = found.interval(0.9)
    assert low[1] < ratio(sums).value[1] < high[1]


@pytest.mark.parametrize("scheme", ["poisson", "gather"])
def test_bootstrap_is_the_same_on_any_number_of_workers(scheme):
    found = [
        bootstrap(sums_of(50), seed=3, replicates=300, scheme=scheme, workers=n).values for n in (1, 2, 5)
    ]
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    more = bootstrap(sums_of(50), seed=3, replicates=400, scheme=scheme).values
    assert more[:300].tobytes() == found[0].tobytes()


def test_what_cannot_be_resampled_is_refused():
    with pytest.raises(DataError, match="over 1 task with weight"):
        bootstrap(sums_of(1), seed=0)
    with pytest.raises(DataError, match=r"drew none of 2 tasks: use scheme='gather'"):
        bootstrap(sums_of(2), seed=0)
    with pytest.raises(InputError, match="expected one of poisson, gather"):
        bootstrap(sums_of(9), seed=0, scheme="jackknife")
    with pytest.raises(InputError, match="replicates=1"):
        bootstrap(sums_of(9), seed=0, replicates=1)


@given(batches(features=1), st.sampled_from(["pooled", "trajectory"]), st.sampled_from(["pooled", "task"]))
def test_conversion_of_every_context_gives_the_target_convention(batch, source, target):
    """A sample that holds each context in proportion to its source weight, here as exact copies."""
    lengths = batch.lengths[batch.lengths > 0]
    common = math.lcm(*lengths.tolist())
    owner = np.repeat(np.arange(len(batch)), batch.lengths)
    copies = common // batch.lengths[owner] if source == "trajectory" else np.ones(len(owner), int)
    T, tasks = np.repeat(batch.lengths[owner], copies), np.repeat(batch.tasks[owner], copies)
    found = convert(T, tasks, source=source, target=target)
    values = np.repeat(batch.features[:, 0].astype(float), copies)
    if target == "task":  # the sample holds tasks as often as it drew them, so compare inside each task
        for q in np.unique(batch.tasks[owner]):
            rows = tasks == q
            inside = np.average(values[rows], weights=found.weights[rows])
            exact = cluster_sums(batch, convention="pooled")
            at = exact.tasks.tolist().index(q)
            assert inside == pytest.approx(exact.numerators[at, 0] / exact.denominators[at], rel=1e-9)
    else:
        exact = ratio(cluster_sums(batch, convention=target)).value[0]
        assert np.average(values, weights=found.weights) == pytest.approx(exact, rel=1e-9)
    assert found.weights.mean() == pytest.approx(1)
    assert found.ess <= len(T) * (1 + 1e-12)
    assert found.weights.max() / found.weights.min() <= lengths.max() ** 2


def test_task_weights_stay_between_the_bounds_of_the_lengths():
    found = convert([1, 3, 2, 2], [0, 0, 1, 1], source="trajectory", target="task")
    assert found.weights == pytest.approx([0.5, 1.5, 1, 1])
    assert convert([2, 2], [0, 1], source="trajectory", target="pooled").ess == 2
    assert convert([1, 4], [0, 0], source="pooled", target="task").weights == pytest.approx([1, 1])


def test_a_sample_that_cannot_be_converted_is_refused():
    with pytest.raises(DataError, match="length 0"):
        convert([1, 0], [0, 0], source="pooled", target="task")
    with pytest.raises(DataError, match="two vectors of one length"):
        convert([1, 2], [0], source="pooled", target="task")
    with pytest.raises(InputError, match="does not tell"):
        convert([1], [0], source="task", target="pooled")
    with pytest.raises(InputError, match="target='weights'"):
        convert([1], [0], source="pooled", target="weights")
