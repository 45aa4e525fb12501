"""The laws of accepted contexts, by exact enumeration of every proposal: no sampling, no tolerance."""

from collections import defaultdict
from fractions import Fraction

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches, filters

from occupancy import occupancy

T_MAX = 6


def accepted_law(batch, proposal, psi=None, p_phi=None) -> dict[int, Fraction]:
    """Law of the turn i of an accepted trace: tau uniform over the batch, t' from `proposal`, all filters.

    proposal(T) lists the probabilities of t' = 1, 2, ..; t' > T is rejected, as Algorithm 1 does.
    """
    reached: dict[int, Fraction] = defaultdict(Fraction)
    for b, T in enumerate(batch.lengths.tolist()):
        for t, mass in enumerate(proposal(T), start=1):
            if t > T or (psi is not None and not psi[b]):
                continue
            i = int(batch.offsets[b]) + t - 1
            passes = 1 if p_phi is None else Fraction(float(p_phi[i]))
            reached[i] += Fraction(1, len(batch)) * mass * passes
    total = sum(reached.values())
    return {i: mass / total for i, mass in reached.items() if mass}


def normalised(weights) -> dict[int, Fraction]:
    total = sum(weights)
    return {i: w / total for i, w in enumerate(weights) if w}


def from_T_max(T):
    return [Fraction(1, T_MAX)] * T_MAX


def from_T(T):
    return [Fraction(1, T)] * T if T else []


PAIRS = [(from_T_max, "pooled"), (from_T, "trajectory")]


@pytest.mark.parametrize(("proposal", "convention"), PAIRS)
@given(batch=batches())
def test_proposals_make_the_convention(proposal, convention, batch):
    """Unif{1..T_max} with rejection is the pooled law; Unif{1..T} the trajectory-uniform one."""
    assert accepted_law(batch, proposal) == normalised(naive.context_weights(batch, convention))


@pytest.mark.parametrize(("proposal", "convention"), PAIRS)
@given(batch=batches(), data=st.data())
def test_filters_multiply_the_weights(proposal, convention, batch, data):
    """The law of accepted traces is proportional to Psi p_Phi, or to Psi p_Phi / T under Unif{1..T}."""
    psi, p_phi = data.draw(filters(batch))
    law = accepted_law(batch, proposal, psi, p_phi)
    assert law == normalised(naive.context_weights(batch, convention, psi, p_phi))
    found = occupancy(batch, convention=convention, psi=psi, p_phi=p_phi).probability
    exact = np.zeros(batch.n_states)
    for i, mass in law.items():
        exact[batch.states[i]] += mass
    assert found == pytest.approx(exact, rel=1e-12)


@given(batch=batches(), nu=st.lists(st.integers(0, 4), min_size=1, max_size=T_MAX))
def test_a_fixed_law_weighs_turn_t_by_its_mass(batch, nu):
    nu[0] += 1
    law = accepted_law(batch, lambda T: [Fraction(n, sum(nu)) for n in nu])
    weights = [Fraction(nu[t - 1]) if t <= len(nu) else Fraction(0) for _, t, _ in naive.turns(batch)]
    assert law == normalised(weights)


@given(batch=batches())
def test_equal_acceptances_a_task_make_the_task_convention(batch):
    """Each task topped up to one accepted switch: tasks uniform, then the pooled law inside the task."""
    tasks = sorted({int(batch.tasks[b]) for b, _, _ in naive.turns(batch)})
    law: dict[int, Fraction] = {}
    for q in tasks:
        of_task = [i for b, _, i in naive.turns(batch) if batch.tasks[b] == q]
        law |= {i: Fraction(1, len(tasks) * len(of_task)) for i in of_task}
    assert law == normalised(naive.context_weights(batch, "task"))


@given(batch=batches(), T=st.integers(1, 4))
def test_equal_lengths_make_pooled_and_trajectory_uniform_the_same_bits(batch, T):
    from occupancy import Trajectories

    B = batch.n_turns // T
    if B == 0:
        return
    equal = Trajectories(np.arange(0, B * T + 1, T), batch.states[: B * T], np.arange(B))
    pooled, uniform = (occupancy(equal, convention=c) for c in ("pooled", "trajectory"))
    assert pooled.probability.tolist() == uniform.probability.tolist()
    assert naive.occupancy(equal, naive.context_weights(equal, "pooled")) == naive.occupancy(
        equal, naive.context_weights(equal, "trajectory")
    )
