"""Evaluations of small trainings share their tasks, and with them the luck of which tasks those are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from analysis.curves.acquisition import EPISODES, Option, _as_expected
from analysis.curves.arms import Arm, features
from analysis.curves.curves import posterior
from analysis.curves.evidence import MOST_SHARED, Training, evaluation_noise, measured
from analysis.curves.prior import Facts
from occupancy.record.recipe import INF

BC = Arm("pure-bc", INF, 0.0)


def evaluated(
    rates: np.ndarray, rng: np.random.Generator, *, named: bool = True, attempts: int = 2
) -> list[Training]:
    """A training of one form for each row of success rates [T, Q], on the same tasks."""
    names = tuple(map(str, range(rates.shape[1]))) if named else ()
    return [
        Training(BC, 1, 0, seed, tuple(map(float, own)), (attempts,) * len(own), tasks=names)
        for seed, own in enumerate(rng.binomial(attempts, rates))
    ]


@pytest.mark.parametrize(
    ("attempts", "levels", "first"),
    [
        ([2] * 60, [0, 0, 0], [0, 0, 0]),
        ([1] * 30 + [8] * 30, [0, 0, 0], [0, 0, 0]),
        ([2] * 60, [-3, -0.5, 1.5], [0, 0, 0]),
        ([2] * 12, [0, 0, 0], [0, 0, 0]),
        ([2] * 60, [0, 0, 0], [0, 0, 30]),
        ([1] * 60, [0, 0, 0], [0, 1, 2]),
    ],
    ids=["alike", "unequal attempts", "levels", "few tasks", "half the tasks", "one task is no data"],
)
def test_errors_of_evaluations_are_those_of_drawing_other_tasks(
    attempts: list[int], levels: list[float], first: list[int]
) -> None:
    """The covariances are those of logits over repetitions with other tasks of the same kind."""
    rng = np.random.default_rng(0)

    def again() -> list[Training]:
        rates = expit(1.5 * rng.standard_normal(90) + 0.5 * rng.standard_normal((3, 90)))
        found = []
        for seed, (begin, level) in enumerate(zip(first, levels, strict=True)):
            own = slice(begin, begin + len(attempts))
            won = rng.binomial(attempts, expit(logit(rates[seed, own]) + level))
            names = tuple(map(str, range(own.start, own.stop)))
            found.append(Training(BC, 1, 0, seed, tuple(map(float, won)), tuple(attempts), tasks=names))
        return found

    seen = np.cov(np.array([[measured(t)[0] for t in again()] for _ in range(2000)]).T)
    told = np.mean([evaluation_noise(again()) for _ in range(150)], 0)
    assert np.diag(told) == pytest.approx(np.diag(seen), rel=0.15)
    scale = np.sqrt(np.outer(np.diag(seen), np.diag(seen)))
    off = ~np.eye(3, dtype=bool)
    assert (told / scale)[off] == pytest.approx((seen / scale)[off], abs=0.1)
    assert (told / scale)[off].mean() == pytest.approx((seen / scale)[off].mean(), abs=0.04)
    assert np.linalg.eigvalsh(told).min() > 0


def test_the_draw_of_tasks_blurs_levels_and_not_leads() -> None:
    rng = np.random.default_rng(0)
    rates = np.repeat(rng.beta(0.5, 0.5, (1, 200)), 8, 0)
    seen, apart = (evaluated(rates, rng, named=named, attempts=8) for named in (True, False))
    apart = [replace(t, successes=s.successes) for t, s in zip(apart, seen, strict=True)]
    together, alone = evaluation_noise(seen), evaluation_noise(apart)
    assert np.allclose(np.diag(together), np.diag(alone))
    assert not (alone - np.diag(np.diag(alone))).any(), "without names every training has tasks of its own"
    mean, lead = np.full(8, 1 / 8), np.array([1, -1, *[0] * 6])
    assert mean @ together @ mean > 5 * (mean @ alone @ mean)
    assert lead @ together @ lead < 0.25 * (lead @ alone @ lead)
    assert np.linalg.eigvalsh(together).min() > 0


def test_trainings_on_other_tasks_share_no_luck() -> None:
    rng = np.random.default_rng(1)
    rates = np.repeat(rng.beta(0.5, 0.5, (1, 100)), 4, 0)
    first, second = evaluated(rates, rng), evaluated(rates, rng)
    other = [replace(t, tasks=tuple(f"other {name}" for name in t.tasks)) for t in second]
    noise = evaluation_noise([*first, *other])
    assert (noise[:4, :4] > 0).all()
    assert not noise[:4, 4:].any()


def test_tasks_that_all_went_alike_say_nothing_of_what_is_shared() -> None:
    rng = np.random.default_rng(1)
    seen = evaluated(np.repeat(rng.beta(0.5, 0.5, (1, 100)), 4, 0), rng)
    # Residuals of .1 are 0 but for rounding, and rounding correlates, too.
    alike = [replace(seen[0], successes=(p,) * 100, attempts=(1,) * 100) for p in (0.1, 0.1, 0.1, 1.0)]
    none = evaluation_noise(alike)
    assert not (none - np.diag(np.diag(none))).any()
    noise, both = evaluation_noise(seen), evaluation_noise([*seen, *alike])
    assert both[:4, :4] == pytest.approx(noise)
    sd = np.sqrt(np.diag(both))
    assert (both / np.outer(sd, sd))[0, 4:] == pytest.approx(noise[0, 1] / sd[0] / sd[1])


def test_evaluations_are_never_taken_for_the_same() -> None:
    one = evaluated(np.full((1, 50), 0.5), np.random.default_rng(0))[0]
    noise = evaluation_noise([one, one])
    assert noise[0, 1] == pytest.approx(MOST_SHARED * noise[0, 0])
    opposite = replace(one, successes=tuple(2 - k for k in one.successes))
    assert evaluation_noise([one, opposite])[0, 1] == 0, "luck is not shared with the opposite sign"


def test_a_training_that_is_only_expected_shares_the_luck_of_those_that_were_made() -> None:
    rng = np.random.default_rng(1)
    seen = evaluated(np.repeat(rng.beta(0.5, 0.5, (1, 100)), 4, 0), rng)
    expected = _as_expected(Option(BC, 2.0, 9), seen, Facts(sunk=0.5))
    assert (expected.demo_tokens, expected.seed, expected.sunk_tokens) == (2.0, 9, 0.5)
    x = features(BC, 2.0, sunk=0.5)
    assert expected.pass_at_1 == pytest.approx(expit(x @ posterior(seen, Facts(sunk=0.5)).mean))
    noise, more = evaluation_noise(seen), evaluation_noise([*seen, expected])
    assert more[:4, :4] == pytest.approx(noise)
    assert more[0, 4] / np.sqrt(more[4, 4]) == pytest.approx(noise[0, 1] / np.sqrt(noise[1, 1]))
    assert len(_as_expected(Option(BC, 2.0, 9), [], Facts()).attempts) == EPISODES
