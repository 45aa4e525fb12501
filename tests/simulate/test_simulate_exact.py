import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_simulate import accepted, hand_back, occupancies, random_world, recipes, rollouts

from occupancy import RecipeError, preset
from simulate import accepted_law, answers, family, hand_backs
from simulate.solving.jax64 import double_precision

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(max_examples=15)
def test_occupancies_and_values_equal_the_enumeration_of_all_trajectories(seed):
    world = random_world(seed)
    policy = world.by_state(world.base)
    found = answers(world)
    pooled, uniform = occupancies(world, policy)
    np.testing.assert_allclose(found.pooled, pooled, atol=1e-12)
    np.testing.assert_allclose(found.per_trajectory, uniform, atol=1e-12)
    success = sum(p for p, _, _, end in rollouts(world, policy) if end == world.S)
    assert found.J_student == pytest.approx(success, abs=1e-12)


@given(SEEDS)
@settings(max_examples=10)
def test_hand_backs_equal_the_recursion_and_end_at_both_policies(seed):
    world = random_world(seed)
    U, found = hand_backs(world), answers(world)
    assert U.shape == (world.horizon + 1, world.horizon, world.S)
    for k in range(world.horizon + 1):
        for t in range(world.horizon):
            naive = [hand_back(world, world.by_state(world.base), s, t + 1, k) for s in range(world.S)]
            np.testing.assert_allclose(U[k, t], naive, atol=1e-12)
    np.testing.assert_allclose(U[0], found.V_student, atol=1e-12)
    np.testing.assert_allclose(U[-1], found.V_teacher, atol=1e-12)


@pytest.mark.parametrize("name", ["short", "middle", "long", "any", "garnet"])
def test_the_telescope_closes(name):
    """E sum_t [V_e(h_{t-1}) - V_e(h_t)] over the student's episodes is J_teacher - J_student."""
    world = family(name).draw(3)
    found = answers(world)
    probs = np.einsum("sa,sau->su", world.by_state(world.base), world.chances)
    after = np.pad(found.V_teacher[1:], ((0, 1), (0, 2)))
    after[:, world.S] = 1.0
    lost = found.by_turn * (found.V_teacher - (probs * after[:, world.successors]).sum(axis=2))
    assert lost.sum() == pytest.approx(found.J_teacher - found.J_student, abs=1e-10)
    assert found.per_trajectory.sum() == pytest.approx(1, abs=1e-12)


@given(SEEDS)
@settings(max_examples=8)
def test_every_presets_law_and_costs_equal_the_enumeration(seed):
    world = random_world(seed, T=4)
    for recipe in recipes(world):
        contexts, C_i, C_tr = accepted(world, recipe, world.by_state(world.base))
        if contexts.sum() < 1e-12:
            with pytest.raises(RecipeError, match="accepts no context"):
                accepted_law(world, recipe)
            continue
        law = accepted_law(world, recipe)
        np.testing.assert_allclose(law.contexts, contexts / contexts.sum(), atol=1e-10, err_msg=recipe.name)
        assert law.acceptance == pytest.approx(contexts.sum(), abs=1e-12)
        assert (law.C_i, law.C_tr) == pytest.approx((C_i, C_tr), rel=1e-10)


def test_costs_of_a_proposal_grow_with_K_to_those_of_the_whole_continuation():
    world = family("short").draw(0)
    costs = [accepted_law(world, preset("op-short", K=K, T_max=world.horizon)).C_i for K in (1, 2, 5, 30)]
    assert costs == sorted(costs)
    success = accepted_law(world, preset("op-success", T_max=world.horizon))
    assert success.C_i == pytest.approx(costs[-1])
    assert success.C_tr < success.C_i


def test_equal_lengths_make_both_conventions_one():
    world = random_world(5)
    loop = np.tile(np.arange(world.S)[:, None], (1, 3))
    chances = np.zeros_like(world.chances)
    chances[:, :, 0] = 1
    # Success on the last turn only: nothing but the horizon ends an episode, except from one state.
    loop[0, 0] = world.S
    start = np.eye(world.S)[1]
    loop[1, 0] = 2
    loop[2, 0] = 3
    loop[3, 0] = 0
    same = type(world)(**{**vars(world), "successors": loop, "chances": chances, "start": start})
    found = answers(same)
    assert found.mean_length == 4
    np.testing.assert_allclose(found.pooled, found.per_trajectory, atol=1e-15)


def test_the_value_is_differentiable_and_batched_in_the_policy():
    world = random_world(11)
    policy = world.by_state(world.base)
    with double_precision():
        from simulate.solving import programming

        def J(table):
            chain = programming.chain(world.start, world.successors, world.chances, table)
            return world.start @ programming.value(chain, world.horizon)[0]

        slope = np.asarray(jax.grad(J)(policy))
        step = np.zeros_like(policy)
        step[1, 0] = 1e-6
        difference = float(J(policy + step) - J(policy - step)) / 2e-6
        both = np.asarray(jax.vmap(J)(np.stack([policy, world.teacher])))
    assert slope[1, 0] == pytest.approx(difference, rel=1e-6)
    found = answers(world)
    np.testing.assert_allclose(both, [found.J_student, found.J_teacher], atol=1e-12)


def test_other_switch_laws_are_exact_too_and_impossible_ones_are_refused():
    world = random_world(3)
    student = world.by_state(world.base)
    failed = preset("oec", T_max=world.horizon, psi="without_success", phi="all")
    for recipe in (failed, preset("op-short", K=2, T_max=world.horizon, switch="start")):
        contexts, _, _ = accepted(world, recipe, student)
        law = accepted_law(world, recipe).contexts
        np.testing.assert_allclose(law, contexts / contexts.sum(), atol=1e-12)
    with pytest.raises(RecipeError, match="weights"):
        accepted_law(world, preset("op-short", switch="weights", K=1, T_max=world.horizon))
    with pytest.raises(RecipeError, match="horizon 4"):
        accepted_law(world, preset("op-short", K=1, T_max=5))
