"""Imagined worlds: exact laws against every path, purchases against what a wish alone would buy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import naive_plan
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.plan.filling import Filled
from analysis.plan.imagined_exact import FAILED, FIXED, UNIFORM, switches, values
from analysis.plan.imagined_places import Places, passed, teach
from analysis.plan.imagined_purchases import (
    BOUGHT,
    CONTEXTS,
    LEDGER,
    PROPOSALS,
    TRAINED,
    UNSPENT,
    Play,
    Wishes,
    buy,
    outcomes,
)
from simulate.pipelines.outcome import pipeline_keys

T_MAX = 4


def places(seed: int, *, nodes: tuple[int, ...] = (2, 1), moves: int = 3) -> Places:
    """A small world drawn at random: so many nodes in each class."""
    rng = np.random.default_rng(seed)
    V, X = sum(nodes), len(nodes)
    own = np.repeat(np.arange(X), nodes)
    weight = rng.random(V) + 0.1
    filled = Filled(own, np.zeros(V, bool), weight / np.bincount(own, weight)[own], np.ones(V))
    laws = rng.random((2, V, moves)) * (rng.random((2, V, moves)) < 0.8) + 1e-3
    start = rng.random(V)
    return Places(
        start=start / start.sum(),
        to=rng.integers(0, V + X + 2, (V, moves)).astype(np.int32),
        student=laws[0] / laws[0].sum(1, keepdims=True),
        teacher=laws[1] / laws[1].sum(1, keepdims=True),
        used=np.full(V, moves),
        first=np.searchsorted(own, np.arange(X + 1)),
        weight=filled.weight,
        within=filled.within,
        guide=filled.guide,
        tokens=rng.integers(5, 40, V).astype(float),
        unit=rng.integers(0, V, V),
        kappa=np.full(V, 1.5),
    )


WORLDS = st.builds(places, st.integers(0, 10_000), nodes=st.sampled_from([(1,), (2,), (2, 1), (1, 3)]))
FORMS = st.sampled_from([UNIFORM, FAILED, FIXED])


@given(WORLDS, st.integers(1, T_MAX))
def test_values_are_the_chance_of_the_paths_that_win(world: Places, T_max: int) -> None:
    learnt, clean = np.random.default_rng(0).random((2, len(world.unit), 3))
    found = values(world, learnt, clean, T_max)
    winner = naive_plan.winner(world, T_max)
    for c in range(3):
        shown = world.teacher + clean[:, c, None] * (winner - world.teacher)
        every = naive_plan.paths(world._replace(teacher=shown), learnt[:, c], T_max)
        assert found[c] == pytest.approx(sum(chance for chance, _, won in every if won))


@given(WORLDS, st.integers(1, T_MAX))
def test_switches_are_where_the_paths_are_switched(world: Places, T_max: int) -> None:
    V = len(world.unit)
    learnt = np.random.default_rng(1).random((V, 2))
    found = np.diff(switches(world, learnt, T_max), axis=2, prepend=0.0)
    for c in range(2):
        expected: dict[int, Counter[tuple[int, int]]] = {law: Counter() for law in (UNIFORM, FAILED, FIXED)}
        for chance, nodes, won in naive_plan.paths(world, learnt[:, c], T_max):
            for t, v in enumerate(nodes, start=1):
                expected[UNIFORM][t, v] += chance / len(nodes)
                expected[FAILED][t, v] += 0.0 if won else chance / len(nodes)
                expected[FIXED][t, v] += chance / T_max
        for law, wanted in expected.items():
            table = found[law, c].reshape(T_max, V)[::-1]
            for t in range(1, T_max + 1):
                assert table[t - 1] == pytest.approx([wanted[t, v] for v in range(V)], abs=1e-12)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True))
def test_an_entry_is_found_by_its_running_sum(chances: list[float], share: float) -> None:
    running = np.cumsum(chances)
    at = passed(running, share * running[-1])
    wanted = np.searchsorted(running, share * running[-1], side="right")
    assert at == min(wanted, len(chances) - 1)


def test_the_teacher_moves_by_its_law() -> None:
    world, n = places(3), 20_000
    keys, nodes = pipeline_keys(0, 0, 1)[0], np.empty(1, np.int64)
    law = naive_plan.one_turn(world, np.ones(len(world.unit)))
    for v, expected in enumerate(law):
        ends = [teach(world, v, 1, 1, keys, episode, nodes)[1] for episode in range(n)]
        assert np.bincount(ends, minlength=len(expected)) / n == pytest.approx(expected, abs=0.015)


def wish(K: list[int], budget: list[float], **known: Any) -> Wishes:
    nothing = np.zeros(len(K), np.int64)
    return Wishes(
        law=np.array(known.get("law", nothing)),
        share=np.array(known.get("share", nothing)),
        K=np.array(K),
        success_only=np.array(known.get("success_only", nothing)),
        budget=np.array(budget, float),
    )


def bought(
    world: Places, wishes: Wishes, low: int, high: int, **played: Any
) -> tuple[np.ndarray, np.ndarray]:
    labels, ledger = np.zeros((len(wishes.K), len(world.kappa))), np.zeros((len(wishes.K), LEDGER))
    play = Play(played.get("times", 1.0), 500, played.get("by_training", False), 0.5)
    keys = pipeline_keys(0, 0, T_MAX)[3]
    contexts = switches(world, np.full((len(world.unit), 1), 0.5), T_MAX)[played.get("law", UNIFORM), 0]
    buy(world, play, wishes, low, high, contexts, T_MAX, keys, labels, ledger)
    return labels, ledger


WISHES = st.lists(
    st.tuples(st.integers(1, T_MAX), st.floats(0, 900), st.integers(0, 1)), min_size=1, max_size=4
)


@given(WORLDS, WISHES, st.booleans(), st.sampled_from([1.0, 2.5]), FORMS)
def test_a_wish_buys_what_it_would_alone(
    world: Places, drawn: list[tuple[int, float, int]], by_training: bool, times: float, law: int
) -> None:
    wishes = wish(*map(list, zip(*[d[:2] for d in drawn], strict=True)), success_only=[d[2] for d in drawn])
    played = {"by_training": by_training, "times": times, "law": law}
    labels, ledger = bought(world, wishes, 0, len(drawn), **played)
    for o in range(len(drawn)):
        alone, spent = bought(world, wishes, o, o + 1, **played)
        np.testing.assert_array_equal(alone[o], labels[o])
        np.testing.assert_array_equal(spent[o], ledger[o])


@given(WORLDS, WISHES, st.booleans())
def test_a_ledger_adds_up(world: Places, drawn: list[tuple[int, float, int]], by_training: bool) -> None:
    wishes = wish(*map(list, zip(*[d[:2] for d in drawn], strict=True)), success_only=[d[2] for d in drawn])
    labels, ledger = bought(world, wishes, 0, len(drawn), by_training=by_training)
    for o, (_, budget, success_only) in enumerate(drawn):
        assert ledger[o, TRAINED] <= ledger[o, BOUGHT] + 1e-9
        charged = ledger[o, TRAINED] if by_training else ledger[o, BOUGHT]
        assert charged + ledger[o, UNSPENT] <= budget + 1e-9
        assert ledger[o, CONTEXTS] <= ledger[o, PROPOSALS] + 1e-9
        if not success_only:
            assert ledger[o, TRAINED] == ledger[o, BOUGHT]
        least, most = labels[o].sum() * world.tokens.min(), labels[o].sum() * world.tokens.max()
        assert least - 1e-9 <= ledger[o, TRAINED] <= most + 1e-9


def track(unit: list[int]) -> Places:
    """Two nodes in a row, then success; a student that fails half of the time at each."""
    return Places(
        start=np.array([1.0, 0.0]),
        to=np.array([[1, 4, 4], [3, 4, 4]], np.int32),
        student=np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]),
        teacher=np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
        used=np.array([2, 2]),
        first=np.array([0, 2]),
        weight=np.array([0.5, 0.5]),
        within=np.array([0.5, 1.0]),
        guide=np.array([0, 1]),
        tokens=np.array([10.0, 20.0]),
        unit=np.array(unit),
        kappa=np.full(max(unit) + 1, 1.5),
    )


def found(
    world: Places, demos: float, on_policy: Wishes, owned: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    play, keys = Play(1.0, 1000, False, 0.5), pipeline_keys(0, 0, 5)
    return outcomes(world, play, wish([5], [demos]), on_policy, keys, np.full((2, len(world.kappa)), owned))


def test_an_outcome_is_what_its_labels_teach_and_its_ledger_what_they_cost() -> None:
    J, shown, spent = found(track([0, 1]), 90.0, wish([1, 5], [0.0, 60.0]))
    assert shown[0, BOUGHT] == 90  # three demonstrations of 30 tokens
    assert shown[0, CONTEXTS] == 3
    g = 3 / 4.5
    assert J[0] == pytest.approx((g + (1 - g) / 2) ** 2)
    assert spent[1, TRAINED] == spent[1, BOUGHT] <= 60
    assert J[1] > J[0]
    assert J[2:] == pytest.approx([0.25, 1.0])


def test_what_is_learnt_at_a_node_is_learnt_wherever_the_same_is_read() -> None:
    apart, together = (found(track(unit), 10.0, wish([1], [0.0]))[0][0] for unit in ([0, 1], [0, 0]))
    assert together > apart


@given(WORLDS)
def test_filtered_turns_are_never_worse_to_learn(world: Places) -> None:
    V = len(world.unit)
    plain, clean = values(world, np.ones((V, 2)), np.broadcast_to([0.0, 1.0], (V, 2)).copy(), 30)
    assert clean >= plain - 0.02  # the winner's law is for a whole horizon, the last turns have less


def test_a_filter_that_nothing_passes_ends_and_says_what_is_left() -> None:
    world = track([0, 1])
    world = world._replace(student=world.teacher)  # the student always succeeds
    J, _, spent = found(world, 0.0, wish([5], [100.0], law=[FAILED], success_only=[1]))
    assert spent[0, UNSPENT] == 100
    assert spent[0, BOUGHT] == spent[0, CONTEXTS] == 0
    assert np.isfinite(J).all()
