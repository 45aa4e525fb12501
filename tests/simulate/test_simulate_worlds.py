from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_simulate import random_world

from simulate import (
    FAMILIES,
    Family,
    Garnet,
    Recovery,
    WorldError,
    answers,
    draw_worlds,
    family,
    load_world,
    recovery_world,
)
from simulate.pipelines.outcome import chances_of, tables_of
from simulate.pipelines.serial import values


def broken(field, at, value):
    world = random_world(1)
    array = np.array(getattr(world, field))
    array[at] = value
    return replace(world, **{field: array})


@pytest.mark.parametrize(
    ("field", "at", "value", "message"),
    [
        ("chances", (2, 1, 0), 5.0, r"row \[2, 1\] of chances sums to .*: expected 1"),
        ("chances", (2, 1, 0), -0.25, r"chances\[2, 1, 0\] = -0.25: expected a probability"),
        ("teacher", (3, 0), np.nan, r"teacher\[3, 0\] = nan"),
        ("base", (1, 1), 2.0, r"row \[1\] of base sums to"),
        ("start", 0, 3.0, r"start sums to"),
        ("tokens", 2, -7, r"tokens\[2\] = -7: expected a cost of at least 1"),
        ("successors", (0, 2), 99, r"successors\[0, 2\] = 99: expected an id from 0 below S \+ 2 = 6"),
        ("contexts", 1, -1, r"contexts\[1\] = -1"),
        ("features", (0, 1), np.inf, r"features\[0, 1\] = inf"),
    ],
)
def test_bad_worlds_are_refused_with_row_and_value(field, at, value, message):
    with pytest.raises(WorldError, match=message):
        broken(field, at, value)


def test_an_unreachable_end_names_the_start_that_cannot_reach_it():
    world = random_world(1)
    successors = np.array(world.successors)
    successors[1] = 1
    with pytest.raises(WorldError, match=r"start\[1\] = .*success cannot be reached from state 1 within 4"):
        replace(world, successors=successors, start=np.eye(4)[1])


def test_shapes_and_types_are_refused_by_name():
    with pytest.raises(WorldError, match=r"teacher has shape \(4, 3\): expected \(4, 2\)"):
        replace(random_world(1), teacher=np.full((4, 3), 1 / 3))
    with pytest.raises(WorldError, match="tokens has type float64: expected whole numbers"):
        replace(random_world(1), tokens=np.full(4, 1.5))


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 10**9))
@settings(max_examples=12)
def test_drawn_worlds_are_valid_and_reproducible(name, seed):
    first, again = family(name).draw(seed), family(name).draw(seed)
    for field in ("start", "successors", "chances", "teacher", "base", "contexts", "features", "tokens"):
        np.testing.assert_array_equal(getattr(first, field), getattr(again, field))


@given(st.data())
@settings(max_examples=40)
def test_any_knobs_in_range_make_a_valid_world(data):
    shortest = data.draw(st.integers(1, 5), label="shortest path")
    repairs = data.draw(st.integers(0, 4), label="repairs")
    chance = st.floats(0.01, 0.99)
    world = recovery_world(
        Recovery(
            tracks=data.draw(st.integers(1, 5), label="tracks"),
            path=(shortest, data.draw(st.integers(shortest, 7), label="longest path")),
            actions=data.draw(st.integers(3, 6), label="actions"),
            errors=data.draw(st.integers(1, 5), label="errors"),
            first_repairs=data.draw(st.integers(1, 30), label="first repairs"),
            repairs=repairs,
            generic=data.draw(st.floats(1, 40), label="generic"),
            student_track=data.draw(chance, label="student"),
            student_repair=data.draw(st.lists(chance, min_size=1, max_size=6), label="student at repairs"),
            loop=data.draw(st.floats(0, 0.5), label="loop"),
            dead=data.draw(st.floats(0, 0.5), label="dead"),
            aliasing=data.draw(st.floats(0, 1), label="aliasing"),
            features=data.draw(st.integers(2, 9), label="features"),
            seed=data.draw(st.integers(0, 2**32), label="seed"),
        )
    )
    assert world.contexts.max() < world.X == len(world.features)
    J = world.start @ chances_of(world, world.base)
    J_teacher = world.start @ values(tables_of(world), world.teacher, world.horizon)
    assert 0 < J < 1 + 1e-12
    assert 0 < J_teacher < 1 + 1e-12


def test_families_come_in_equal_shares_and_seeds_do_not_overlap():
    worlds = draw_worlds(8, seed=1)
    assert [w.name.split("-")[0] for w in worlds] == ["short", "middle", "long", "any"] * 2
    assert not {w.name for w in worlds} & {w.name for w in draw_worlds(8, seed=2)}


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"loop": 0.7, "dead": 0.6}, "sum above 1"),
        ({"path": (5, 3)}, r"path=\(5, 3\)"),
        ({"student_track": 1.2}, "student_track=1.2: expected a number of at least 0, of at most 1"),
        ({"tracks": 0}, "tracks=0"),
        ({"generic": 0.5}, "generic=0.5"),
        ({"tokens_repair": (0,)}, r"tokens_repair=\(0,\)"),
    ],
)
def test_impossible_knobs_are_refused(knobs, message):
    with pytest.raises(WorldError, match=message):
        Recovery(**knobs)
    with pytest.raises(WorldError, match="states=1"):
        Garnet(states=1)


def test_knobs_do_what_they_say():
    plain = Recovery(tracks=6)
    start = answers(recovery_world(plain))
    harder = answers(recovery_world(replace(plain, student_track=0.6)))
    deadly = answers(recovery_world(replace(plain, dead=0.3)))
    loops = answers(recovery_world(replace(plain, loop=0.8)))
    assert harder.J_student < start.J_student
    assert deadly.J_teacher < start.J_teacher
    assert loops.J_student > start.J_student
    aliased = recovery_world(replace(plain, aliasing=1.0))
    shared = [
        len({int(aliased.teacher[s].argmax()) for s in np.flatnonzero(aliased.contexts == x)})
        for x in np.unique(aliased.contexts)
    ]
    assert max(shared) > 1
    assert recovery_world(replace(plain, repairs=0)).S < recovery_world(plain).S


def test_an_explicit_world_is_read_from_toml(tmp_path):
    text = """
    horizon = 5
    start = [1.0, 0.0]
    contexts = [0, 1]
    tokens = [100, 80]
    teacher = [[1.0, 0.0], [1.0, 0.0]]
    student = [[0.6, 0.4], [0.3, 0.7]]
    transitions = [[0, 0, "success", 1.0], [0, 1, 1, 1.0], [1, 0, 0, 1.0], [1, 1, "failure", 1.0]]
    """
    file = tmp_path / "two.toml"
    file.write_text(text)
    world = load_world(str(file))
    assert (world.name, world.S, world.A) == ("two", 2, 2)
    # From state 0 within five turns: succeed at once, or err, come back and try again.
    loop = 0.4 * 0.3
    assert answers(world).J_student == pytest.approx(0.6 * (1 + loop + loop**2))
    file.write_text(text.replace('[1, 1, "failure", 1.0]', '[1, 1, "failure", 0.9]'))
    with pytest.raises(WorldError, match=r"two\.toml: row \[1, 1\] of chances sums to 0.9"):
        load_world(str(file))
    file.write_text(text.replace("[1, 0, 0, 1.0]", "[1, 0, 7, 1.0]"))
    with pytest.raises(WorldError, match=r"transition 2 is \[1, 0, 7, 1.0\]"):
        load_world(str(file))


def test_a_family_is_read_from_toml(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('kind = "recovery"\n[knobs]\nrepairs = 2\n[ranges]\ntracks = [3, 5]\n')
    assert load_world(str(file)).name == "mine-0"
    for text, said in (
        ("[knobs]\nreapirs = 2\n", "unknown knob 'reapirs'"),
        ("ranges = 3\n", "ranges=3: expected NAME = value, in tables"),
        ("[ranges]\ntracks = [1, 2, 3]\n", "range of tracks"),
    ):
        file.write_text(text)
        with pytest.raises(WorldError, match=rf"mine\.toml: .*{said}"):
            load_world(str(file))
    with pytest.raises(WorldError, match="range of tracks"):
        Family("x", ranges={"tracks": (5, 3)})
    with pytest.raises(WorldError, match="expected a family"):
        load_world("shrot")
