"""Evaluations of small trainings share their tasks, and with them the luck of which tasks those are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.curves.arms import Arm
from analysis.curves.evidence import Training, evaluation_noise, measured
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


def test_errors_of_evaluations_on_the_same_tasks_are_those_of_drawing_other_tasks() -> None:
    """The covariances are those of logits over repetitions with other tasks of the same kind."""
    rng = np.random.default_rng(0)

    def again() -> list[Training]:
        hard, own = rng.beta(0.7, 0.7, 60), rng.beta(2.0, 2.0, (3, 60))
        return evaluated(0.8 * hard + 0.2 * own, rng)

    seen = np.cov(np.array([[measured(t)[0] for t in again()] for _ in range(1000)]).T)
    told = np.mean([evaluation_noise(again()) for _ in range(100)], 0)
    off = ~np.eye(3, dtype=bool)
    assert told[~off].mean() == pytest.approx(seen[~off].mean(), rel=0.15)
    assert told[off].mean() == pytest.approx(seen[off].mean(), rel=0.15)


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
    alike = [replace(t, successes=(1.0,) * 100) for t in first]
    assert np.count_nonzero(evaluation_noise(alike)) == 4, "tasks that all went alike say nothing of luck"
