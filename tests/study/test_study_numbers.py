"""The numbers of a verdict, on sweeps whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm

from agentloop.run.evaluate import success
from analysis.curves.arms import Arm
from analysis.curves.evidence import Training
from analysis.study.cells import SweepCell
from analysis.study.claims import CLAIMS, judged
from analysis.study.measured import Lead, Sweep, split_of
from analysis.study.registration import _expected_se
from analysis.study.verdict import _regret
from occupancy.record.errors import DataError

FEW_AGAINST_FILTERED = CLAIMS[2]
BC = Arm("pure-bc", r=0.0)


def sweep_of(rates: Mapping[Arm, Sequence[float]], *, clusters: int = 100) -> Sweep:
    """A sweep with the success of each arm at each of some tasks, one seed each."""
    cells = {SweepCell(arm, 100, 0): {} for arm in rates}
    rows = [
        {"arm": cell.name, "task_id": str(q), "cluster_id": q % clusters, "success": R, "no_data": False}
        for cell in cells
        for q, R in enumerate(rates[cell.arm])
    ]
    return Sweep(Path(), cells, pd.DataFrame(rows))


def test_a_claim_compares_arms_at_the_same_r_however_many_were_measured_there() -> None:
    """Success depends on r alone, and the two sides have different numbers of arms at each r."""
    arms = [Arm("op-short", K, 0.5) for K in (1, 2, 3)] + [Arm("op-short", 1, 1.0)]
    arms += [Arm("op-critical", r=0.5), Arm("op-critical", r=1.0), Arm("op-success", r=1.0)]
    rng = np.random.default_rng(0)
    at = {0.5: rng.random(50), 1.0: rng.random(50) / 2}
    found = judged(sweep_of({arm: at[arm.r] for arm in arms}), 100, FEW_AGAINST_FILTERED)
    assert (len(found["better"]), len(found["beaten"])) == (4, 3)
    assert found["difference"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("others", [1, 3])
def test_the_interval_of_the_regret_covers_it_as_often_as_it_says(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice is 1 below the best of the others, and each lead has the error .2."""
    arms = [BC, *(Arm("op-short", K, 0.5) for K in range(1, 1 + others))]
    sweep = sweep_of({arm: [0.0, 1.0] for arm in arms})
    rng, hits, runs = np.random.default_rng(1), 0, 2000
    leads: dict[Arm, Lead] = {}
    monkeypatch.setattr(Sweep, "leads", lambda self, budget, baseline: leads)
    for _ in range(runs):
        for arm in arms[1:]:
            d = float(rng.normal(1.0, 0.2))
            leads[arm] = Lead(d, 0.2, d - 0.4, d + 0.4, 0.0, 50)
        told = _regret(sweep, 100, BC)
        hits += told["low"] <= 1.0 <= told["high"]
    assert hits / runs > 0.935, "95 % less three standard errors"
    leads |= {arm: Lead(1.0, 0.2, 0.6, 1.4, 0.0, 50) for arm in arms[1:]}
    told, wide = _regret(sweep, 100, BC), 0.2 * norm.ppf(1 - 0.05 / (others + 1))
    assert (told["low"], told["high"]) == pytest.approx((1 - wide, 1 + wide)), "and no more often"
    leads.clear()
    assert (_regret(sweep, 100, BC)["status"], _regret(sweep, 100, BC)["regret"]) == ("undecided", None)


def test_tasks_that_all_agree_leave_an_error_and_one_cluster_is_refused() -> None:
    short = Arm("op-short", 1, 0.5)
    lead = sweep_of({BC: [0.0] * 3, short: [1.0] * 3}).leads(100, BC)[short]
    assert lead.difference == 1.0
    assert lead.se > 0.1
    assert 0 < lead.p < 1
    with pytest.raises(DataError, match="share 1 different tasks: expected at least 2"):
        sweep_of({BC: [0.0, 1.0], short: [1.0, 1.0]}, clusters=1).leads(100, BC)


@pytest.mark.parametrize(("won", "attempts"), [(1, 49), (62, 119)])
def test_equal_tasks_have_no_spread_left_by_rounding(won: int, attempts: int) -> None:
    """won / attempts times attempts is not won in floating point."""
    rows = [
        {"task_id": q, "cluster_id": q, "attempt": i, "score": float(i < won)}
        for q in range(7)
        for i in range(attempts)
    ]
    found = success(rows)
    assert (found.cluster_se, found.interval) == (0.0, "wilson")
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.low > 0.1


def test_a_split_is_what_task_ids_name_before_a_slash_and_nothing_where_they_have_none() -> None:
    assert list(split_of(pd.Series(["seen/a/1", "unseen/b"]))) == ["seen", "unseen"]
    assert list(split_of(pd.Series(["fs1-001", "fs1-003"]))) == ["", ""]


def trained(forms: int, seeds: int, games: int, attempts: int, rng: np.random.Generator) -> list[Training]:
    """Small trainings whose success differs by game, by form at each game, and by seed."""
    game, names = 1.5 * rng.standard_normal(games), tuple(map(str, range(games)))
    found = []
    for form in range(forms):
        own = game + 2.0 * rng.standard_normal(games)
        for seed in range(seeds):
            won = rng.binomial(attempts, expit(own + 0.3 * rng.standard_normal()))
            arm, tried = Arm("op-short", 1 + form, 1.0), (attempts,) * games
            found.append(Training(arm, 0, 9, seed, tuple(map(float, won)), tried, tasks=names))
    return found


def sized(seeds: int, attempts: int, games: int) -> Any:
    return SimpleNamespace(
        sweep=SimpleNamespace(decisive_seeds=seeds),
        evaluation=SimpleNamespace(attempts=attempts, games=games),
    )


@pytest.mark.parametrize(("seeds", "games"), [(1, 100), (3, 60), (3, 240)])
def test_the_expected_error_is_that_of_repeated_sweeps(seeds: int, games: int) -> None:
    rng = np.random.default_rng(0)
    leads = []
    for _ in range(1000):
        level = [t.pass_at_1 for t in trained(2, seeds, games, 1, rng)]
        leads.append(np.mean(level[:seeds]) - np.mean(level[seeds:]))
    told = [_expected_se(sized(seeds, 1, games), trained(4, 3, 120, 1, rng))[0] for _ in range(30)]
    assert np.mean(np.square(told)) ** 0.5 == pytest.approx(np.std(leads), rel=0.1)


def test_the_expected_error_is_of_pairs_at_the_same_games() -> None:
    rng = np.random.default_rng(0)
    made = trained(1, 2, 100, 2, rng)
    se, source = _expected_se(sized(2, 2, 0), made)
    assert source.startswith("1 pairs")
    order = rng.permutation(100)
    mixed = {name: tuple(np.array(getattr(made[1], name))[order].tolist()) for name in ("successes", "tasks")}
    assert _expected_se(sized(2, 2, 0), [made[0], replace(made[1], **mixed)])[0] == pytest.approx(se)
    assert _expected_se(sized(2, 4, 0), made)[0] < se < _expected_se(sized(1, 2, 0), made)[0]
    elsewhere = replace(made[1], tasks=tuple(f"other {name}" for name in made[1].tasks))
    for none in ([], [made[0], elsewhere], [made[0], made[0]], [made[0], replace(made[1], demo_tokens=1)]):
        assert _expected_se(sized(2, 4, 137), none) == (
            pytest.approx(0.025 * 2**0.5 * (2 / 4 / 2) ** 0.5),
            "a guess: no two small trainings of one form differ",
        )
