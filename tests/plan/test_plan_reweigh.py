"""One pilot under the laws of other recipes: exact against naive sums, and against truth of a toy world."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pilots
import pytest

from analysis.curves.arms import FILTERED
from analysis.plan.costs import costs, costs_of_contexts
from analysis.plan.offers import Purchase, proposal_tokens
from analysis.plan.pilot import Pilot
from analysis.plan.planner import plan_pilot
from analysis.plan.read import read_pilot
from analysis.plan.reweigh import LAWS, NOT_IDENTIFIED, kept, other_laws, proposed
from occupancy.record.recipe import preset


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Pilot:
    folder = tmp_path_factory.mktemp("pilot") / "A"
    return read_pilot(pilots.write_pilot(folder, pilots.A, tasks=60, seed=3, rollouts=3).folder)


def test_every_law_has_a_row_and_leap_says_why_it_has_none(pilot: Pilot) -> None:
    rows = {row["law"]: row for row in plan_pilot(pilot, Purchase(1e7)).laws}
    assert set(rows) == {*LAWS, *NOT_IDENTIFIED}
    assert [law for law, row in rows.items() if not row["identified"]] == ["leap"]
    assert "the teacher chooses the switch" in rows["leap"]["note"]
    assert "repetition" in rows["oec"]["note"]
    json.dumps(list(rows.values()), allow_nan=False)


@pytest.mark.parametrize("law", LAWS)
def test_costs_and_gains_are_those_of_naive_sums(pilot: Pilot, law: str) -> None:
    (row,) = [row for row in other_laws(pilot) if row["law"] == law]
    contexts, turns = pilot.contexts, pilot.contexts.turns
    per_task = {
        q: sum(int(T) for T, c in zip(contexts.T, contexts.cluster, strict=True) if c == q)
        for q in set(contexts.cluster.tolist())
    }
    spent = used = gain = paid = square = 0.0
    for c in range(len(contexts)):
        T = float(contexts.T[c])
        w = {"pooled": T, "oec": T, "task_pooled": T / per_task[int(contexts.cluster[c])]}.get(law, 1.0)
        if law in ("op-critical", "op-failed") and contexts.parent[c] == 1:
            w = 0.0
        tokens = turns.output[turns.offsets[c] : turns.offsets[c + 1]].sum()
        spent += w * tokens
        paid += w
        if law not in FILTERED or contexts.teacher[c] == 1:
            used, square = used + w, square + w * w
            gain += w * (contexts.teacher[c] - contexts.student[c])
    assert row["cost_inference"] == pytest.approx(spent / used)
    assert row["accepted"] == pytest.approx(used / paid)
    assert row["ess"] == pytest.approx(used**2 / square)
    assert row["gain"][-1] == pytest.approx(gain / used)


def test_laws_of_equal_lengths_agree(pilot: Pilot) -> None:
    flat = replace(pilot, contexts=replace(pilot.contexts, T=np.full(len(pilot.contexts), 7)))
    rows = {row["law"]: row for row in other_laws(flat)}
    assert rows["pooled"]["gain"] == pytest.approx(rows["trajectory"]["gain"])
    assert rows["pooled"]["ess"] == pytest.approx(len(pilot.contexts))


def test_pooled_gain_is_that_of_every_turn_of_every_rollout(pilot: Pilot) -> None:
    """Against the toy's exact values, over turns that a fresh student really reaches."""
    toy, rng, values = pilots.A, np.random.default_rng(0), pilots.A.values()
    gain, exact, turns = values["teacher"] - values["student"], 0.0, 0
    for _ in range(3000):
        path, _ = pilots.play(toy, rng, [("student", toy.T_max)], (0, 0), toy.T_max)
        for t, turn in enumerate(path, 1):
            exact += gain[(toy.T_max - t + 1, *turn["state"])]
            turns += 1
    (row,) = [row for row in other_laws(pilot) if row["law"] == "pooled"]
    assert abs(row["gain"][-1] - exact / turns) < 3 * row["gain_se"][-1]


def test_filters_that_reject_everything_are_said(pilot: Pilot) -> None:
    won = replace(pilot, contexts=replace(pilot.contexts, parent=np.ones(len(pilot.contexts))))
    (row,) = [row for row in other_laws(won) if row["law"] == "op-critical"]
    assert not row["identified"]
    assert "reject all" in row["note"]
    assert not kept(won, "op-critical").any()
    assert proposed(won, "op-success").all()


def test_a_proposal_that_a_filter_refuses_costs_nothing(pilot: Pilot) -> None:
    """So a purchase needs more proposals than contexts, by as much as rollouts pass the filter less often."""
    known = costs(pilot)
    failed = pilot.contexts.parent < pilot.recipe.success_at
    whole = costs_of_contexts(pilot, axis="inference", prices=None)[:, -1]
    like = {"T_max": pilot.recipe.T_max}
    assert proposal_tokens(pilot, preset("op-critical", **like)) == pytest.approx((whole * failed).mean())
    assert proposal_tokens(pilot, preset("op-success", **like)) == pytest.approx(known.inference[-1])
    assert proposal_tokens(pilot, preset("op-short", K=2, **like)) == pytest.approx(known.inference[1])
    assert proposal_tokens(pilot, preset("pure-bc", **like)) == pytest.approx(known.demo)
    none = replace(pilot, demo_turns=replace(pilot.demo_turns, offsets=np.zeros(1, np.int64)))
    assert np.isfinite(proposal_tokens(none, preset("pure-bc", **like)))
