"""Buying at contexts with mixed outcomes alone, as a candidate: price, prior, file and rounds."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pilots
import pytest
from test_plan_trainer import GOOD
from test_spend import Market, rounds_of

from agentloop.commands.collect import add_commands as add_collect
from agentloop.cuts.cut import Cell, Whole, buy
from agentloop.run.plan_file import fill_collect, read_plan
from analysis.cli import main
from analysis.curves.arms import MIXED, Arm, arms_of, features
from analysis.curves.curves import posterior
from analysis.curves.evidence import Training
from analysis.curves.prior import Facts, shipped
from analysis.plan.answer import sentences
from analysis.plan.offers import Purchase, offers, proposal_tokens
from analysis.plan.planner import plan
from analysis.plan.purchase import plan_file, write_plan
from analysis.plan.read import read_pilot
from analysis.plan.report import Plan
from analysis.plan.trainer import Bench, Effort
from analysis.spend.rounds import _decide
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import INF, preset
from occupancy.runs import Run, open_run

CRITICAL = Arm("op-critical", INF, 0.5, context="mixed")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return open_run(folder)


@pytest.fixture(scope="module")
def found(run: Run) -> Plan:
    return plan(run.folder, budget=5e5, pool=2000, mixed=True)


def with_mixed(found: Plan) -> Plan:
    """The same plan, recommending the arm CRITICAL."""
    return replace(found, recommended=next(c for c in found.candidates if c.arm == CRITICAL))


def test_contexts_with_mixed_outcomes_are_those_that_a_cut_buys(run: Run) -> None:
    contexts, whole = read_pilot(run.folder).contexts, Whole(run)
    bought = buy(whole, Cell(preset("op-short", K="inf", T_max=pilots.A.T_max, context="mixed")))
    tokens = [
        contexts.turns.output[slice(*contexts.turns.offsets[c : c + 2])].sum() for c in range(len(contexts))
    ]
    assert 0 < contexts.mixed.sum() < len(contexts), "the test needs both verdicts"
    assert len(bought.continuations) == contexts.mixed.sum()
    assert bought.continuation_tokens == sum(np.array(tokens)[contexts.mixed])


def test_a_pilot_with_one_replay_compares_none_and_says_why(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "A", pilots.A, tasks=30, replicates=1)
    found = plan(run.folder, budget=5e5, pool=2000, mixed=True)
    assert all(c.context == "all" for c in found.candidates)
    assert {left["why"] for left in found.left_out if "mixed" in left["recipe"]} == {
        "no context of the pilot has mixed outcomes by two hand-backs at k = 0"
    }
    assert "Contexts with mixed outcomes cannot be compared: no context" in " ".join(sentences(found))


def test_what_a_budget_buys_is_priced_by_the_contexts_that_pass(run: Run) -> None:
    pilot, arm = read_pilot(run.folder), replace(CRITICAL, r=1.0)
    (offer,) = offers(pilot, Purchase(5e5), [arm])
    contexts = pilot.contexts
    naive = [
        contexts.turns.output[slice(*contexts.turns.offsets[c : c + 2])].sum()
        for c in range(len(contexts))
        if contexts.mixed[c] and contexts.parent[c] < 1
    ]
    price = float(np.mean(naive))
    assert offer.contexts == int(Purchase(5e5).left(pilot) / price)
    assert offer.proposals == pytest.approx(offer.contexts * len(contexts) / len(naive), abs=1)
    assert proposal_tokens(pilot, arm.recipe_of(pilot.recipe)) == pytest.approx(sum(naive) / len(contexts))


def test_only_a_plan_that_is_asked_compares_them_and_other_arms_stay_what_they_were(
    run: Run, found: Plan
) -> None:
    plain = plan(run.folder, budget=5e5, pool=2000)
    of = {c.arm: c for c in found.candidates}
    assert {c.arm for c in plain.candidates} == {arm for arm in of if arm.context == "all"}
    assert {(arm.recipe, arm.K) for arm in of if arm.context == "mixed"} == set(MIXED)
    for c in plain.candidates:
        assert (c.pass_at_1, c.low, c.high) == (of[c.arm].pass_at_1, of[c.arm].low, of[c.arm].high)
    assert of[CRITICAL].pass_at_1 != of[replace(CRITICAL, context="all")].pass_at_1


def test_arms_with_mixed_contexts_lead_by_what_worlds_showed_and_trainings_move_that() -> None:
    prior, plain = shipped(), replace(CRITICAL, context="all")
    for size, at in ((5.0, 0), (20.0, 1)):
        lead = prior.offset(CRITICAL, size) - prior.offset(plain, size)
        assert lead == pytest.approx(prior.leads[CRITICAL.recipe, INF, 0.5][at])
    assert np.flatnonzero(features(CRITICAL, 2.0) - features(plain, 2.0)).tolist() == [
        len(features(plain, 2.0)) - 1
    ]

    def lead_after(trainings: list[Training]) -> float:
        means, _ = (post := posterior(trainings, Facts())).logits([CRITICAL, plain], 5.0)
        return float(post.weights @ (means[:, 0] - means[:, 1]))

    made = [
        Training(arm, 0.5, 0.5, seed, tuple([won] * 100), (4,) * 100)
        for seed in range(3)
        for arm, won in ((CRITICAL, 3.0), (plain, 2.0))
    ]
    assert lead_after([]) == pytest.approx(prior.leads[CRITICAL.recipe, INF, 0.5][0])
    assert lead_after(made) > lead_after([])


def test_trainings_on_mixed_contexts_are_kept_and_the_next_plan_compares_them(
    run: Run, tmp_path: Path
) -> None:
    copy = open_run(shutil.copytree(run.folder, tmp_path / "A"))
    bench = Bench(copy, lambda folders, seed: GOOD, "mine:train")
    (option, *_) = bench.options([CRITICAL, replace(CRITICAL, context="all")])
    assert option.arm.context in ("all", "mixed")
    mine = next(o for o in bench.options([CRITICAL]) if o.arm == CRITICAL)
    trained = bench.train(mine)
    assert trained.arm == CRITICAL
    cell = next((copy.folder / "trainings" / "cells").iterdir())
    assert open_run(cell).recipe.context == "mixed"
    read = plan(copy.folder, budget=5e5, pool=2000)
    assert any(c.context == "mixed" for c in read.candidates)


def test_its_file_buys_the_recipe_and_older_files_are_read(found: Plan, run: Run, tmp_path: Path) -> None:
    best = with_mixed(found)
    file = write_plan(best, run.folder, tmp_path / "PLAN.toml")
    planned = read_plan(file)
    assert planned == plan_file(best, run.folder)
    assert planned.recipe(planned.part("continuations")).hash == best.recommended.recipe_hash
    parser = argparse.ArgumentParser()
    add_collect(parser.add_subparsers())
    asked = ["--plan", str(file), "--part", "continuations", "--student", "drunk", "--out", "RUN"]
    given = parser.parse_args(["collect", *asked])
    fill_collect(given)
    assert "context=mixed" in given.set
    file.write_text(
        "\n".join(line for line in file.read_text().splitlines() if not line.startswith("context"))
    )
    assert {part.context for part in read_plan(file).parts} == {"all"}


def test_the_answer_names_them(found: Plan, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", str(run.folder), "--budget", "500k", "--pool", "2000", "--mixed"]
    assert main([*asked, "--all"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert any(line.split()[:1] == ["mixed"] for line in lines)
    assert not any("…" in line for line in lines), "every column fits"
    assert max(map(len, lines)) <= 80
    said = " ".join(sentences(with_mixed(found)))
    assert "contexts with mixed outcomes from" in said
    assert "no teacher token" in said


def test_rounds_compare_what_the_plan_did(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "analysis.spend.rounds.arms_of",
        lambda T, **more: [arm for arm in arms_of(T, **more) if arm.context == "mixed" and arm.r == 1],
    )
    copy = open_run(shutil.copytree(run.folder, tmp_path / "pilot"))
    rounds = rounds_of(copy, tmp_path / "out", Market(), mixed=True, effort=Effort(2))
    decided = _decide(rounds, [copy])
    arm = Arm.from_dict(decided["arm"])
    assert arm.recipe_of(run.recipe).context == "mixed", "what is bought last"
    assert len(decided["trainings"]) == 2


def test_unknown_contexts_are_refused() -> None:
    with pytest.raises(InputError, match="context='rare': expected one of all, mixed"):
        Arm("op-short", context="rare")
    told = replace(CRITICAL, context="all").to_dict()
    assert "context" not in told
    assert Arm.from_dict(told).context == "all"
    assert Arm.from_dict(CRITICAL.to_dict()) == CRITICAL


def test_a_damaged_number_of_replays_is_one_line(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "A", pilots.A, tasks=4)
    told = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps(told | {"replicates": "two"}))
    with pytest.raises(DataError, match="replicates='two': expected a whole number; restore it"):
        read_pilot(run.folder)
