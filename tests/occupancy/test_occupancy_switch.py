import re
from fractions import Fraction

import naive
import numpy as np
import pytest
from conftest import INTERPRETED
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches

from occupancy import DataError, RecipeError, SwitchLaw, Trajectories, draw_switch, draw_switches

T_MAX = 6
LAWS = [
    SwitchLaw("start"),
    SwitchLaw("uniform"),
    SwitchLaw("fixed"),
    SwitchLaw("fixed", nu=(0.5, 0.0, 0.25, 0.0, 0.25, 0.0)),
    SwitchLaw("fixed", nu=(0.0, 1.0)),
    SwitchLaw("weights"),
]
SEEDS = st.integers(0, 2**64 - 1)


def masses(law: SwitchLaw, T: int, weights: np.ndarray) -> list[Fraction]:
    """Probability of t' = 1, 2, .. before rejection."""
    if law.law == "start":
        return [Fraction(1)]
    if law.law == "uniform":
        return [Fraction(1, T)] * T
    if law.law == "fixed":
        return [Fraction(p) for p in law.nu] or [Fraction(1, T_MAX)] * T_MAX
    exact = [Fraction(float(w)) for w in weights]
    return [w / sum(exact) for w in exact]


@given(batches(), st.sampled_from(LAWS), SEEDS, st.integers(0, 3), st.integers(0, 50))
def test_batch_equals_the_law_and_the_scalar_form(batch, law, seed, draw, first):
    drawn = draw_switches(batch, law, seed=seed, draw=draw, first=first, T_max=T_MAX)
    for b, T in enumerate(batch.lengths.tolist()):
        weights = batch.weights[batch.offsets[b] : batch.offsets[b + 1]]
        one = draw_switch(
            T, law, seed=seed, trajectory=first + b, draw=draw, T_max=T_MAX, weights=weights.tolist()
        )
        assert one == (drawn.t_prime[b], drawn.probability[b], drawn.accepted[b])
        if T == 0:
            assert one == (0, 0.0, False)
            continue
        law_of_t = masses(law, T, weights)
        assert one.probability == pytest.approx(float(law_of_t[one.t_prime - 1]), rel=1e-12)
        assert one.accepted == (one.t_prime <= T)
        if law.law != "weights":  # float sums of arbitrary weights may round a boundary either way
            u = naive.uniform_of(seed, first + b, draw)
            assert one.t_prime == naive.first_above(u, law_of_t)


@given(batches(), st.sampled_from(LAWS), SEEDS, st.data())
def test_a_part_gets_the_draws_of_the_whole(batch, law, seed, data):
    cut = data.draw(st.integers(0, len(batch)))
    at = batch.offsets[cut]
    tail = Trajectories(
        batch.offsets[cut:] - at,
        batch.states[at:],
        batch.tasks[cut:],
        n_states=batch.n_states,
        weights=batch.weights[at:],
    )
    whole = draw_switches(batch, law, seed=seed, T_max=T_MAX)
    part = draw_switches(tail, law, seed=seed, first=cut, T_max=T_MAX)
    assert part.t_prime.tolist() == whole.t_prime[cut:].tolist()
    assert part.accepted.tolist() == whole.accepted[cut:].tolist()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.law}-{len(law.nu)}")
def test_frequencies_follow_the_law(law):
    """Chi-square of B draws at T = 4, bounded at the one-in-a-million point of 5 degrees of freedom."""
    B, T = 1_000 if INTERPRETED else 40_000, 4
    weights = np.array([1, 0, 2.5, 0.5], np.float32)
    batch = Trajectories(
        np.arange(0, B * T + 1, T), np.zeros(B * T, int), np.zeros(B, int), weights=np.tile(weights, B)
    )
    drawn = draw_switches(batch, law, seed=7, T_max=T_MAX)
    expected = np.array([float(p) for p in masses(law, T, weights)]) * B
    seen = np.bincount(drawn.t_prime - 1, minlength=len(expected))
    assert (seen[expected == 0] == 0).all()
    possible = expected > 0
    assert ((seen - expected)[possible] ** 2 / expected[possible]).sum() < 36
    assert drawn.accepted.sum() == seen[:T].sum()


def test_draws_differ_between_seeds_trajectories_and_draw_numbers():
    law = SwitchLaw("uniform")
    points = [(s, b, d) for s in range(3) for b in range(3) for d in range(3)]
    drawn = [draw_switch(2**31 - 1, law, seed=s, trajectory=b, draw=d).t_prime for s, b, d in points]
    assert len(set(drawn)) == len(drawn)


ONE = Trajectories([0, 2], [0, 0], [0], weights=[0, 0])


@pytest.mark.parametrize(
    ("law", "arguments", "error", "message"),
    [
        (SwitchLaw("teacher"), {}, RecipeError, "the teacher's answer"),
        (SwitchLaw("fixed"), {}, RecipeError, "T_max=None: give T_max >= 1"),
        (SwitchLaw("fixed"), {"T_max": 1}, DataError, "2 turns with T_max=1"),
        (SwitchLaw("weights"), {}, DataError, "trajectory 0 sum to zero"),
    ],
)
def test_what_cannot_be_drawn_is_refused(law, arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        draw_switches(ONE, law, seed=0, **arguments)
    with pytest.raises(error, match=re.escape(message)):
        draw_switch(2, law, seed=0, trajectory=0, weights=[0, 0], **arguments)


def test_weights_law_needs_weights():
    law = SwitchLaw("weights")
    with pytest.raises(DataError, match="batch without weights"):
        draw_switches(Trajectories([0, 1], [0], [0]), law, seed=0)
    with pytest.raises(DataError, match="T=3 and 2 weights"):
        draw_switch(3, law, seed=0, trajectory=0, weights=[1, 1])


@pytest.mark.parametrize("weights", [[-1, 3], [float("inf"), 1], [1, float("nan")], [1e200, 1]])
def test_weights_that_are_no_weights_are_refused(weights):
    with pytest.raises(DataError, match=r"weight .*: expected"):
        draw_switch(2, SwitchLaw("weights"), seed=0, trajectory=0, weights=weights)
