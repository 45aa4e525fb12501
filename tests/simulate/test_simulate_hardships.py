import numpy as np
import pytest
from naive_simulate import random_world

from occupancy import preset
from simulate import WorldError, accepted_law, answers, family, pilot_rows, truth
from simulate.pipelines.outcome import chances_of
from simulate.worlds.desk import Desk, desk_world
from simulate.worlds.hardships import Hardships, with_hopeless
from simulate.worlds.maze import Maze, maze_world
from simulate.worlds.searching import Search, search_world

KINDS = {"desk": (Desk, desk_world), "maze": (Maze, maze_world), "search": (Search, search_world)}


@pytest.mark.parametrize("name", ["desk", "maze", "search"])
def test_the_student_learns_much_and_never_becomes_the_teacher(name):
    world = family(name).draw(0)
    data, seen = np.zeros_like(world.base), slice(0, world.X)
    np.add.at(data, world.contexts, world.tokens[:, None] * world.teacher)
    some, more = (world.student.learn(world.base, world.features, data * n) for n in (1e3, 4e3))
    assert world.start @ chances_of(world, some) > answers(world).J_student + 0.05
    assert abs(world.start @ (chances_of(world, some) - chances_of(world, more))) < 0.01
    prefers = np.arange(world.X), world.teacher[seen].argmax(axis=1)
    assert more[prefers].mean() < world.teacher[seen][prefers].mean() - 0.05
    assert world.features.shape[1] < world.X / 4


@pytest.mark.parametrize("name", ["desk", "maze", "search"])
@pytest.mark.parametrize("student", [0.3, 0.6])
def test_the_student_begins_at_the_part_of_the_teachers_level_that_was_asked_for(name, student):
    make, build = KINDS[name]
    found = answers(build(make(student=student, seed=3)))
    assert found.J_student == pytest.approx(student * found.J_teacher, rel=0.01)


@pytest.mark.parametrize("name", ["desk", "maze", "search"])
def test_what_is_taught_in_some_contexts_moves_the_others(name):
    world = family(name).draw(0)
    half = np.random.default_rng(0).permutation(world.X) < world.X // 2
    data = np.where(half[:, None], 1000.0 * world.teacher[: world.X], 0.0)
    policy = world.student.learn(world.base, world.features, data)
    right = world.teacher[: world.X].argmax(axis=1)
    gain = (policy - world.base)[np.arange(world.X), right]
    assert gain[half].mean() > gain[~half].mean() > 0.02


def test_hopeless_tasks_take_their_share_of_every_value_and_nothing_tells_them():
    world = random_world(2)
    hard = with_hopeless(world, 0.25)
    before, after = answers(world), answers(hard)
    assert after.J_teacher == pytest.approx(0.75 * before.J_teacher)
    assert after.J_student == pytest.approx(0.75 * before.J_student)
    np.testing.assert_array_equal(hard.shown[: world.S], hard.shown[world.S :])
    assert with_hopeless(world, 0.0) is world
    with pytest.raises(WorldError, match="hopeless=1"):
        with_hopeless(world, 1.0)


def test_a_task_is_as_hopeless_for_the_teacher_as_it_was_for_the_student():
    # Failed rollouts hold more hopeless tasks than all do, so fewer of their continuations succeed.
    world = with_hopeless(family("middle").draw(0), 0.3)
    law = accepted_law(world, preset("op-critical", T_max=world.horizon))
    bought = truth(world, preset("op-critical", T_max=world.horizon), budget=60_000, r=1, seeds=10)
    _, C_i, C_tr, _, _, proposals, _, accepted, *_ = bought.ledger.sum(axis=0)
    assert accepted / proposals == pytest.approx(law.acceptance, rel=0.06)
    assert C_tr / C_i == pytest.approx(law.C_tr / law.C_i, rel=0.06)
    assert law.acceptance < 0.6 * law.switched.sum()


def test_pilots_record_no_state_that_betrays_a_hopeless_task():
    world = family("desk").draw(0)
    _, _, rows = pilot_rows(world, seed=1)
    assert max(turn["state_id"] for turn in rows["turns"]) < world.S // 2
    demos = [row["R"] for row in rows["episodes"] if row["kind"] == "demo"]
    assert 0.3 < np.mean(demos) < 0.95


@pytest.mark.parametrize("name", ["desk", "maze", "search"])
def test_convictions_are_always_the_same_wrong_turn_and_slips_are_not(name):
    make, build = KINDS[name]
    slips, convinced = (build(make(convictions=c, hopeless=0.0, seed=3)) for c in (0.0, 1.0))
    agrees = (slips.teacher.argmax(axis=1) == convinced.teacher.argmax(axis=1)).mean()
    assert 0.6 < agrees < 0.97
    assert convinced.teacher.max(axis=1).min() >= 0.9 - 1e-9
    assert slips.teacher.max(axis=1).min() < 0.8


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (Hardships, {"hopeless": 1.0}, "hopeless=1.0: expected a number of at least 0, below 1"),
        (Hardships, {"features": 1}, "features=1: expected a whole number"),
        (Hardships, {"errors": -1.0}, "errors=-1.0"),
        (Desk, {"horizon": 2}, "horizon=2: expected at least as many turns as steps=4"),
        (Desk, {"luck": 1.0}, "luck=1.0"),
        (Maze, {"side": 2}, "side=2"),
        (Maze, {"walls": 0.5}, "walls=0.5"),
        (Maze, {"slip": 1.0}, "slip=1.0"),
        (Search, {"horizon": 3}, "horizon=3"),
        (Search, {"finds": 2.0}, "finds=2.0"),
    ],
)
def test_impossible_knobs_are_refused(make, changes, message):
    with pytest.raises(WorldError, match=message):
        make(**changes)
