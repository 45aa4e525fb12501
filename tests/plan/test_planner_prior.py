"""A prior over learning curves can be learnt again from stored worlds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.curves.arms import DIMENSION
from analysis.curves.curves import posterior
from analysis.curves.prior import shipped
from benchmarks.planner_prior import learn
from benchmarks.planner_prior.cuts import cut
from benchmarks.planner_prior.designs import DESIGNS, chosen, made
from benchmarks.planner_prior.generate import worlds_of
from benchmarks.planner_prior.judge import bands, jobs, judged, of, summary
from benchmarks.planner_prior.laboratory import Laboratory, drawn
from benchmarks.planner_prior.stored import INF, OPTIONS, STORED, facts_of, read
from simulate.pipelines.outcome import chances_of

FAMILIES = ("uphill", "level")


def world(family: str, number: int) -> dict[str, Any]:
    """A stored world in which the share of on-policy data helps in one family and not in the other."""
    rng = np.random.default_rng([len(family), number])
    level, gain = rng.uniform(0.3, 0.5), 0.2 if family == "uphill" else 0.0
    options = np.array([level + 0.1 + gain * r for _, _, r in STORED])

    def training(arm: tuple[str, int, float], size: float, seed: int) -> dict[str, Any]:
        J = level + 0.1 * size + gain * arm[2] + 0.01 * rng.standard_normal()
        split = {"demo": (1 - arm[2]) * size, "op": arm[2] * size}
        return {"arm": arm, "size": size, "seed": seed, "J": J} | split

    arms = [("pure-bc", INF, 0.0), ("op-success", INF, 1.0), ("op-success", INF, 0.5), ("op-short", 3, 0.5)]
    small = [training(arm, size, k) for arm in arms for size in (0.2, 0.9) for k in range(2)]
    rates = {"J0": level, "JT": 0.9, "Tc": 0.7, "Tf": 0.6, "n_failed": 30, "T_early": 0.7, "T_late": 0.7}
    rates |= {"U0": level, "U1": level, "U5": 0.6, "T_max": 12, "nll_demo": 1.0, "nll_tail": 1.2}
    rates |= {"nll_roll": 0.8, "turns_demo": 6.0, "turns_tail": 4.0}
    truth = {
        f"{role}-{m}": (options + 0.002 * m + 0.005 * rng.standard_normal((2, len(STORED)))).tolist()
        for role in ("plan", "plan-success", "rule")
        for m in (5, 20)
    }
    return {
        "family": family,
        "number": number,
        "seed": 1,
        "facts": rates,
        "small": small,
        "truth": truth,
        "rounds": {},
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for family in FAMILIES:
        for number in range(4):
            (tmp_path / f"{family}-{number}.json").write_text(json.dumps(world(family, number)))
    return tmp_path


def test_a_prior_is_learnt_from_stored_worlds(data: Path) -> None:
    learn.main(data, data.parent / "prior.json", date="today")
    prior = shipped(data.parent / "prior.json")
    assert prior.names == (*FAMILIES[::-1], "new", "elsewhere")
    assert prior.provenance["worlds"] == dict.fromkeys(FAMILIES[::-1], 4)
    assert np.exp(prior.log_weights).sum() == pytest.approx(1, abs=1e-3)  # stored to four digits
    assert prior.means.shape == (4, DIMENSION + 12)
    assert all(np.linalg.eigvalsh(S).min() > 0 for S in prior.covariances)
    assert set(prior.offsets) == {(a.recipe, a.K, a.r) for a in OPTIONS}
    one = read(data)[-1]
    assert one.family == "uphill"
    rng = np.random.default_rng(0)
    trainings = made(chosen(one.raw["small"], DESIGNS["half"]), rng)
    believed = posterior(trainings, facts_of(one.raw), prior)
    low, high = bands(believed, OPTIONS, 5)
    assert (low < high).all()
    assert OPTIONS[int(believed.expected(OPTIONS, 5).argmax())].r == 1


def test_worlds_whose_student_is_a_table_do_not_widen_what_is_believed_of_others(data: Path) -> None:
    for number in range(5):
        for family in (*FAMILIES, "lab-a", "lab-b"):
            told = world(family, number) | {"world": f"b-{number}"}
            if family not in FAMILIES:
                told["truth"] = {key: [[0.98] * len(STORED)] * 2 for key in told["truth"]}
            (data / f"{family}-{number}.json").write_text(json.dumps(told))
    worlds = read(data)
    prior = learn.learn(worlds, steps=5)
    assert set(prior.names) == {*FAMILIES, "lab-a", "lab-b", "new", "new table", "elsewhere"}
    assert np.exp(prior.log_weights).sum() == pytest.approx(1)
    apart = learn.learn([x for x in worlds if not x.table], steps=5)
    level = np.array([np.trace(p.covariances[p.names.index("new")][:4, :4]) for p in (prior, apart)])
    assert level[0] < 1.5 * level[1]
    titles = [title for title, _, _ in jobs(worlds, "selection")]
    assert titles == [
        "family left out",
        "family known",
        "family left out, tables",
        "family known, tables",
    ]
    assert [x.family for x in worlds if of(x, "lab-b")] == ["lab-a"] * 5 + ["lab-b"] * 5


def test_a_judgement_has_a_row_for_each_budget(data: Path) -> None:
    worlds = read(data)
    prior = learn.learn(worlds, steps=3)
    rows = [row for k, x in enumerate(worlds) for row in judged(x, prior, "half", np.random.default_rng(k))]
    scores = summary(rows)
    assert set(scores) == {"5", "20"}
    assert scores["5"]["worlds"] == len(worlds)
    assert 0 <= scores["20"]["regret"] < 20


def test_one_family_is_refused(data: Path) -> None:
    worlds = [x for x in read(data) if x.family == "level"]
    with pytest.raises(SystemExit, match="three worlds of each of two families"):
        learn.learn(worlds, steps=2)
    with pytest.raises(SystemExit, match="holds no worlds"):
        read(data / "nothing")


def test_a_world_of_the_laboratory_is_played_like_the_others() -> None:
    one = Laboratory("lab-any", 0, 5)
    world = one.world
    assert facts_of({"facts": one.facts}).T_max == world.horizon
    assert one.J(np.zeros(one.shape)) == pytest.approx(world.start @ chances_of(world, world.base))
    made = cut(one.J, one.shape, one.pool, ("pure-bc", INF, 0.0), 0.4, price=one.price, seed=[5])
    assert made["op"] == 0
    assert 0 < made["demo"] <= 0.4
    assert made["J"] > one.J(np.zeros(one.shape))
    bought = one.table(2 * one.price, one.owned["plan-success"], 1, 2)
    assert np.shape(bought) == (1, len(STORED))
    assert min(bought[0]) > made["J"]
    assert drawn("lab-tables", 0, 5).student != world.student


@pytest.mark.parametrize("name", ["missing.py", "worlds.txt", "."])
def test_a_file_of_worlds_that_is_none_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "worlds.txt").touch()
    with pytest.raises(SystemExit, match="expected a Python file"):
        worlds_of(tmp_path / name)
