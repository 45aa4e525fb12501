"""Signs of contexts that no teacher met: read where they help on tasks held out, and nowhere else."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.plan import classes as planned
from analysis.plan import signs
from analysis.plan.classes import Classes, find_classes, symbols
from analysis.plan.hidden import fit, posterior
from analysis.plan.pilot import Flags, Ints, Pilot
from analysis.plan.read import read_pilot

SLOW_BACK = replace(pilots.A, student_back=(0.3, 0.4, 0.5, 0.6), shared=(40, 40, 40, 40))
LOGPROB = np.arange(len(signs.SIGNS)) == signs.SIGNS.index("log probability")


def recorded(folder: Path, seed: int, tasks: int) -> tuple[Pilot, Flags]:
    """A pilot whose log probabilities are low off the track, and where that is [N]."""
    run = pilots.write_pilot(folder / str(seed), SLOW_BACK, tasks=tasks, seed=seed)
    pilot = read_pilot(run.folder)
    turns = run.read("turns").to_pandas().sort_values(["episode_id", "t"], kind="stable")
    off = (turns["context_id"].str.split(".").str[1] != "0").to_numpy(bool)
    noise = 0.3 * np.random.default_rng(seed).standard_normal(len(off))
    logprob = np.where(off, -2.0, -0.5) + noise
    return replace(pilot, steps=replace(pilot.steps, logprob=logprob)), off


@pytest.fixture(scope="module")
def health(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pilot, Flags]:
    return recorded(tmp_path_factory.mktemp("signs"), 0, 30)


def without_signs(pilot: Pilot) -> Pilot:
    return replace(pilot, steps=replace(pilot.steps, logprob=np.full(len(pilot.steps), np.nan)))


def agreement(pilot: Pilot, classes: Classes, off: Flags) -> float:
    """Share of the unknown steps whose class, read as on or off the track, is right."""
    known, mine = symbols(pilot.steps) >= 0, ~pilot.steps.teacher
    at = classes.label[known & mine]
    share = np.bincount(at, off[known & mine], classes.n) / np.maximum(
        np.bincount(at, minlength=classes.n), 1
    )
    return float(((share[classes.label] > 0.5) == off)[~known & mine].mean())


def parts(pilot: Pilot) -> tuple[Ints, Ints, int]:
    """Symbols, steps that show none, and the number of symbols."""
    symbol = symbols(pilot.steps)
    return symbol, np.flatnonzero(symbol < 0), int(symbol.max()) + 1


@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_probability_that_tells_health_is_read_and_labels_are_truer(tmp_path: Path, seed: int) -> None:
    pilot, off = recorded(tmp_path, seed, 40)
    plain, read = find_classes(without_signs(pilot)), find_classes(pilot)
    assert plain.weights[0] == 0 < read.weights[0]
    assert agreement(pilot, read, off) > agreement(pilot, plain, off) + 0.03
    assert "log probability (" in signs.sentence(read.weights)


def test_shuffled_log_probabilities_are_read_in_nearly_no_draw(health: tuple[Pilot, Flags]) -> None:
    pilot, _ = health
    steps, symbol = pilot.steps, symbols(pilot.steps)
    silent, rng, read = np.ones(int(symbol.max()) + 1), np.random.default_rng(1), 0
    for _ in range(8):
        mixed = replace(pilot, steps=replace(steps, logprob=rng.permutation(steps.logprob)))
        read += signs.weigh_signs(mixed, np.maximum(symbol, 0), symbol, silent=silent)[0] > 0
    assert read <= 1


def test_nothing_changes_where_no_sign_is_read(
    health: tuple[Pilot, Flags], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit by bit: the classes are the hidden ones behind the symbols alone."""
    pilot, _ = health
    monkeypatch.setattr(planned, "weigh_signs", lambda *_, **__: np.zeros(len(signs.SIGNS)))
    found = find_classes(pilot)
    again = find_classes(without_signs(pilot))
    assert not any(found.weights)
    np.testing.assert_array_equal(found.label, again.label)
    symbol, _, n = parts(pilot)
    first, even = np.maximum(symbol, 0), np.ones((len(symbol), n))
    plain, told = (
        fit(pilot, first, symbol, silent=np.ones(n), evidence=given, sweeps=2) for given in (None, even)
    )
    assert told.gamma == pytest.approx(plain.gamma, abs=1e-9)
    assert "no sign" in signs.sentence(found.weights)


def test_evidence_without_weight_is_one_everywhere(health: tuple[Pilot, Flags]) -> None:
    symbol, _, n = parts(health[0])
    np.testing.assert_array_equal(
        signs.evidence(health[0].steps, symbol, np.zeros(len(signs.SIGNS)), n=n), np.ones((len(symbol), n))
    )


@given(st.integers(0, 29), st.integers(0, 99))
def test_a_task_never_tells_its_own_steps(health: tuple[Pilot, Flags], task: int, seed: int) -> None:
    pilot, _ = health
    rng = np.random.default_rng(seed)
    steps = replace(pilot.steps, unparsed=rng.random(len(pilot.steps)) < 0.2)
    symbol, silent, n = parts(pilot)
    rows = silent[steps.cluster[silent] == task]
    before = signs.log_ratios(steps, symbol, rows, n=n)
    own = (steps.cluster == task) & (symbol >= 0)
    other = replace(
        steps,
        logprob=np.where(own, 9 * rng.standard_normal(len(steps)), steps.logprob),
        repeats=steps.repeats ^ own,
        unparsed=steps.unparsed ^ own,
        words=steps.words ^ (own[:, None] & (rng.random(steps.words.shape) < 0.5)),
    )
    changed = np.where(own, rng.integers(0, n, len(steps)), symbol)
    np.testing.assert_array_equal(signs.log_ratios(other, changed, rows, n=n), before)
    assert np.abs(before).max() > 0


def test_ratios_are_those_of_a_naive_count(health: tuple[Pilot, Flags]) -> None:
    pilot, _ = health
    steps = pilot.steps
    symbol, silent, n = parts(pilot)
    rows = silent[:40]
    fold = np.random.default_rng(0).permutation(int(steps.cluster.max()) + 1) % signs.FOLDS
    found = signs.log_ratios(steps, symbol, rows, n=n)[signs.SIGNS.index("turn")]
    values = [int(np.log2(t)) for t in steps.t]
    for at, row in enumerate(rows):
        learnt = [
            i
            for i in range(len(steps))
            if not steps.teacher[i] and symbol[i] >= 0 and fold[steps.cluster[i]] != fold[steps.cluster[row]]
        ]
        alike = [i for i in learnt if values[i] == values[row]]
        usual = (len(alike) + 0.5) / (len(learnt) + 0.5 * (max(values) + 1))
        for y in (0, n // 2, n - 1):
            shown = sum(symbol[i] == y for i in learnt)
            both = sum(symbol[i] == y for i in alike)
            law = (both + signs.USUAL * usual) / (shown + signs.USUAL)
            assert found[at, y] == pytest.approx(np.log(law / usual))


def test_the_posterior_with_evidence_is_that_of_all_paths(health: tuple[Pilot, Flags]) -> None:
    pilot, _ = health
    steps, rng = pilot.steps, np.random.default_rng(0)
    symbol = np.where(rng.random(len(steps)) < 0.4, -1, steps.t % 3)
    told = rng.random((len(steps), 3))
    hidden = fit(pilot, np.maximum(symbol, 0), symbol, silent=np.array([1.0, 0.5, 0.2]), sweeps=1)
    gamma = posterior(pilot, hidden, symbol, told)
    ends = np.append(np.flatnonzero(steps.j == 0)[1:], len(steps))
    short = [
        (a, b)
        for a, b in zip(np.flatnonzero(steps.j == 0), ends, strict=True)
        if b - a <= 4 and np.isfinite(steps.final[b - 1])
    ]
    for a, b in short[:20]:
        author = int(steps.teacher[a])
        kernel, begin = hidden.kernels[author], hidden.begin[author][0 if steps.start[a] else 1]
        expected = np.zeros((b - a, 3))
        for path in itertools.product(range(3), repeat=b - a):
            p = begin[path[0]] * np.prod([kernel[x, y] for x, y in itertools.pairwise(path)])
            p *= kernel[path[-1], 3 if steps.final[b - 1] == 1 else 4]
            for i, x in zip(range(a, b), path, strict=True):
                silent = hidden.silent[x] * (told[i] @ hidden.shows[:, x])
                p *= hidden.shows[symbol[i], x] if symbol[i] >= 0 else silent
            for i, x in enumerate(path):
                expected[i, x] += p
        assert gamma[a:b] == pytest.approx(expected / expected.sum(1, keepdims=True), abs=1e-9)
    assert len(short) >= 5


@given(st.integers(0, 1000))
def test_a_gain_is_clear_by_its_tasks_and_not_by_its_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    by_task = rng.standard_normal(15) + 0.4
    once = signs.clear(by_task, np.arange(15))
    assert once == (by_task.mean() > signs.CLEAR * by_task.std(ddof=1) / np.sqrt(15))
    assert signs.clear(np.repeat(by_task, 9), np.repeat(np.arange(15), 9)) == once
    assert not signs.clear(np.zeros(30), np.arange(30))
    assert not signs.clear(np.ones(30), np.zeros(30, np.int64))


@given(st.lists(st.lists(st.sampled_from(["a", "drawer", "#", "closed."]), max_size=6), min_size=1))
def test_words_are_hashed_without_order_or_count(texts: list[list[str]]) -> None:
    held = signs.hashed_words(pd.Series([" ".join(words) for words in texts]))
    turned = signs.hashed_words(pd.Series([" ".join(words[::-1] + words) for words in texts]))
    np.testing.assert_array_equal(held, turned)
    assert held.sum(1).tolist() == [len(set(words)) for words in texts]
