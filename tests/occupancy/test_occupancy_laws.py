"""The laws that the estimators must follow, each against an exact enumeration.

Accepted contexts of Algorithm 1 are enumerated proposal by proposal, in fractions, and compared with
`occupancy`. Relabelling, missing mass and the performance-difference identity are properties of the product.
"""

from collections import defaultdict
from fractions import Fraction

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import batches, filters

from occupancy import CONVENTIONS, Trajectories, cluster_sums, mean, missing_mass, occupancy

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


def by_state(batch, law: dict[int, Fraction]) -> list[float]:
    """Probability of each state under a law of turns."""
    exact = [Fraction(0)] * batch.n_states
    for i, mass in law.items():
        exact[batch.states[i]] += mass
    return [float(p) for p in exact]


def close(expected):
    return pytest.approx(expected, rel=1e-12)


def from_T_max(T):
    return [Fraction(1, T_MAX)] * T_MAX


def from_T(T):
    return [Fraction(1, T)] * T if T else []


PAIRS = [(from_T_max, "pooled"), (from_T, "trajectory")]


@pytest.mark.parametrize(("proposal", "convention"), PAIRS)
@given(batch=batches())
def test_proposals_make_the_convention(proposal, convention, batch):
    """Unif{1..T_max} with rejection gives the pooled occupancy, Unif{1..T} the trajectory-uniform one."""
    found = occupancy(batch, convention=convention).probability
    assert found == close(by_state(batch, accepted_law(batch, proposal)))


@pytest.mark.parametrize(("proposal", "convention"), PAIRS)
@given(batch=batches(), data=st.data())
def test_filters_multiply_the_weights(proposal, convention, batch, data):
    """The law of accepted traces is proportional to Psi p_Phi, or to Psi p_Phi / T under Unif{1..T}."""
    psi, p_phi = data.draw(filters(batch))
    found = occupancy(batch, convention=convention, psi=psi, p_phi=p_phi).probability
    assert found == close(by_state(batch, accepted_law(batch, proposal, psi, p_phi)))


@given(batch=batches(), nu=st.lists(st.integers(0, 4), min_size=1, max_size=T_MAX))
def test_a_fixed_law_weighs_turn_t_by_its_mass(batch, nu):
    """t' ~ nu with rejection gives the occupancy whose weight of turn t is nu_t."""
    nu[0] += 1
    law = accepted_law(batch, lambda T: [Fraction(n, sum(nu)) for n in nu])
    weights = [nu[t - 1] if t <= len(nu) else 0 for _, t, _ in naive.turns(batch)]
    weighted = Trajectories(
        batch.offsets, batch.states, batch.tasks, n_states=batch.n_states, weights=weights
    )
    assert occupancy(weighted, convention="weights").probability == close(by_state(batch, law))


@given(batch=batches())
def test_equal_acceptances_a_task_make_the_task_convention(batch):
    """Each task topped up to one accepted switch: tasks uniform, then the pooled law inside the task."""
    tasks = sorted({int(batch.tasks[b]) for b, _, _ in naive.turns(batch)})
    law: dict[int, Fraction] = {}
    for q in tasks:
        of_task = [i for b, _, i in naive.turns(batch) if batch.tasks[b] == q]
        law |= {i: Fraction(1, len(tasks) * len(of_task)) for i in of_task}
    assert occupancy(batch, convention="task").probability == close(by_state(batch, law))


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(batch=batches(features=1), data=st.data())
def test_relabelled_states_and_tasks_change_names_only(convention, batch, data):
    state = np.array(data.draw(st.permutations(range(batch.n_states))))
    task = np.array(data.draw(st.permutations(range(int(batch.tasks.max()) + 1))))
    other = Trajectories(
        batch.offsets,
        state[batch.states],
        task[batch.tasks],
        n_states=batch.n_states,
        features=batch.features,
        weights=batch.weights,
    )
    found, again = (occupancy(b, convention=convention) for b in (batch, other))
    assert again.probability[state] == close(found.probability.tolist())
    assert again.ess == close(found.ess)
    assert again.n_tasks == found.n_tasks
    average, same = (mean(b, convention=convention) for b in (batch, other))
    assert same.value == close(average.value.tolist())
    for one, two in (
        (found.standard_error, again.standard_error),
        (average.standard_error, same.standard_error),
    ):
        assert (one is None) == (two is None) == (found.n_tasks == 1)
    if found.standard_error is not None:
        errors = pytest.approx(found.standard_error.tolist(), rel=1e-6, abs=1e-9)
        assert again.standard_error[state] == errors
    unseen, still = (missing_mass(b, convention=convention) for b in (batch, other))
    assert still.by_task.value == close(float(unseen.by_task.value))
    assert (still.by_turn, still.singletons) == (unseen.by_turn, unseen.singletons)


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(batch=batches())
def test_missing_mass_is_the_weight_that_no_other_task_has_seen(convention, batch):
    weights, visits = naive.context_weights(batch, convention), list[int]()
    visitors: dict[int, set[int]] = defaultdict(set)
    for b, _, i in naive.turns(batch):
        if convention != "weights" or weights[i]:  # a turn whose own weight is 0 visits nothing
            visits.append(int(batch.states[i]))
            visitors[visits[-1]].add(int(batch.tasks[b]))
    alone = sum(w for w, s in zip(weights, batch.states.tolist(), strict=True) if len(visitors[s]) == 1)
    found = missing_mass(batch, convention=convention)
    assert float(found.by_task.value) == close(float(alone / sum(weights)))
    single = [s for s in visitors if visits.count(s) == 1]
    assert found.singletons == len(single)
    assert found.by_turn == len(single) / len(visits)


@given(batch=batches(), data=st.data())
def test_the_value_lost_by_turn_telescopes_to_the_performance_difference(batch, data):
    """J(pi_e) - J(pi_1) = E_tau sum_t [V(h_{t-1}) - V(h_t)], V the teacher's value, V(h_T) = R(tau)."""
    eighths = st.integers(0, 8)
    V = np.array(data.draw(st.lists(eighths, min_size=batch.n_turns, max_size=batch.n_turns))) / 8
    R = np.array(data.draw(st.lists(eighths, min_size=len(batch), max_size=len(batch)))) / 8
    after, last = np.append(V[1:], 0.0), batch.offsets[1:][batch.lengths > 0] - 1
    after[last] = R[batch.lengths > 0]
    lost = Trajectories(batch.offsets, batch.states, batch.tasks, n_states=batch.n_states, features=V - after)
    starts = batch.offsets[:-1][batch.lengths > 0]
    by_turn = mean(lost, convention="pooled")
    of_trajectory = float(by_turn.value) * batch.n_turns / (len(batch) - batch.n_empty)
    assert of_trajectory == pytest.approx((V[starts] - R[batch.lengths > 0]).mean(), abs=1e-12)
    numerators = cluster_sums(lost, convention="trajectory").numerators.sum()
    per_turn = (V[starts] - R[batch.lengths > 0]) / batch.lengths[batch.lengths > 0]
    assert numerators == pytest.approx(per_turn.sum(), abs=1e-12)


@given(batch=batches(), T=st.integers(1, 4))
def test_equal_lengths_make_pooled_and_trajectory_uniform_the_same_bits(batch, T):
    B = batch.n_turns // T
    if B == 0:
        return
    equal = Trajectories(np.arange(0, B * T + 1, T), batch.states[: B * T], np.arange(B))
    pooled, uniform = (occupancy(equal, convention=c) for c in ("pooled", "trajectory"))
    assert pooled.probability.tolist() == uniform.probability.tolist()
