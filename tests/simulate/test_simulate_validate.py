import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.curves.arms import Arm
from analysis.plan.report import STATUSES
from analysis.validate.commands import add_commands
from analysis.validate.judge import RULES, Effort, Guess, Planned, judge_worlds, worlds_to_judge
from analysis.validate.product import in_rounds, planned
from analysis.validate.summary import PLANNERS, QUARTER, RANDOM, RIVALS, by_plan, frames, regrets, summary
from occupancy import preset
from occupancy.record.errors import InputError
from occupancy.record.recipe import INF
from simulate import PilotSize, truth
from simulate import commands as laboratory

DOCS = Path(__file__).parents[2] / "docs"
TINY = Effort(PilotSize(tasks=24, demos=12, replicates=1), multiples=(5,), se=None, truth_seeds=4)
FAMILY = """
kind = "recovery"
[knobs]
tokens_track = 100
[ranges]
tracks = [6, 9]
student_track = [0.5, 0.7]
"""


@pytest.fixture(scope="module")
def worlds():
    return worlds_to_judge("short,any", 2, seed=1)


@pytest.fixture(scope="module")
def judged(worlds):
    return judge_worlds(worlds, planner=planned, effort=TINY)


@pytest.fixture(scope="module")
def tables(judged):
    return frames(*judged)


def test_a_familys_file_is_drawn_from(tmp_path):
    drawn = worlds_to_judge("", 8, seed=2)
    assert [name for name, _ in drawn] == ["short", "middle", "long", "any"] * 2
    (tmp_path / "mine.toml").write_text(FAMILY, "utf-8")
    drawn = worlds_to_judge(str(tmp_path / "mine.toml"), 2, seed=0)
    assert [name for name, _ in drawn] == ["mine", "mine"]
    assert not np.array_equal(drawn[0][1].base, drawn[1][1].base)


def test_the_planner_pays_for_its_pilot_and_fixed_rules_do_not(tables):
    options, _ = tables
    whole = options["multiple"] * options["price"]
    paid = options["role"].isin(("planner", "candidate"))
    assert (options["budget"] == whole - options["price"].where(paid, 0)).all()
    assert (options["C_i"] <= options["budget"]).all()
    assert (options["C_i"] > 0.9 * options["budget"]).all()


def test_every_rule_and_every_candidate_is_played(tables):
    options, plans = tables
    counts = options.groupby(["world", "multiple", "role"]).size().unstack()
    assert (counts["rule"] == len(RULES)).all()
    assert (counts[["planner", "free", "quarter"]] == 1).all(axis=None)
    asked = plans.set_index(["world", "multiple"])["candidates"]
    assert counts["candidate"].to_dict() == asked.to_dict()


def test_a_row_holds_the_truth_of_its_option(worlds, tables):
    _, world = worlds[0]
    rows = tables[0]
    row = rows[(rows["world"] == world.name) & (rows["role"] == "rule") & (rows["K"] == "3")].iloc[0]
    recipe = preset("op-short", K=3, T_max=world.horizon)
    assert row["J"] == truth(world, recipe, budget=int(row["budget"]), r=0.5, seeds=4).mean


def test_no_regret_is_below_zero_and_the_best_has_none(tables):
    options, _ = tables
    found = regrets(options)
    assert (found["regret"] >= 0).all()
    rules = found[~found["rule"].isin((*PLANNERS.values(), *RIVALS))].groupby("world")["regret"]
    ruled = options[options["role"] == "rule"].groupby("world")["J"]
    spread = ruled.max() - ruled.min()
    assert np.allclose(rules.max() - rules.min(), spread)


def test_a_random_candidate_and_one_small_run_of_each_rule_are_among_the_rivals(tables):
    options, _ = tables
    found = regrets(options).set_index(["world", "rule"])["regret"]
    for world, part in options.groupby("world"):
        candidates = part[part["role"] == "candidate"]["J"]
        assert found[world, RANDOM] == pytest.approx(part["J"].max() - candidates.mean())
        chosen = part[part["role"] == "quarter"].iloc[0]
        ruled = part[(part["role"] == "rule") & (part["arm"] == chosen["arm"])].iloc[0]
        assert found[world, QUARTER] == pytest.approx(part["J"].max() - ruled["J"])


def test_bands_and_ranks_are_those_of_hand_made_predictions():
    truths, said = [0.1, 0.2, 0.3, 0.4], [0.2, 0.1, 0.3, 0.4]
    rows = [
        {"world": "w", "family": "f", "multiple": 5, "role": "candidate", "J": J}
        | {"predicted": value, "low": value - 0.05, "high": value + 0.05}
        for J, value in zip(truths, said, strict=True)
    ]
    (found,) = by_plan(pd.DataFrame(rows)).to_dict("records")
    assert found["bands_hold"] == 0.5
    assert found["rank"] == pytest.approx(0.8)
    assert found["error"] == pytest.approx(0)


def by_training(folder, budget, pool, seed, trainer):
    """A planner of a few lines: both of its arms predicted by one training on the whole pilot."""
    J = float(np.mean(list(trainer([folder], seed).values()))) if trainer else None
    arms = (Arm("op-critical", INF, 1.0, "success"), Arm("pure-bc", INF, 0.0, "all"))
    guesses = tuple(Guess(arm, J, J, J) for arm in arms)
    return Planned("no_preference", guesses[0], guesses)


def test_any_planner_of_five_arguments_can_be_judged_and_given_a_trainer(worlds):
    effort = replace(TINY, trained=True)
    options, _ = frames(*judge_worlds(worlds, planner=by_training, effort=effort))
    assert options[options["role"] == "planner"]["predicted"].between(0.05, 1).all()
    assert options[options["role"] == "rule"]["predicted"].isna().all()
    # Successful pilot traces alone are other labels than all of them.
    chosen = options[options["role"] == "planner"]
    assert set(chosen["traces"]) == {"success"}


def test_workers_and_another_run_change_nothing(worlds, judged):
    assert judge_worlds(worlds, planner=planned, effort=TINY, workers=2) == judged


def test_the_summary_is_plain_json_over_worlds(tables):
    found = json.loads(json.dumps(summary(*tables), allow_nan=False))
    assert found["worlds"] == 2
    part = found["budgets"]["5"]
    assert part["regret"]["planner"]["all"]["n"] == 2
    assert part["regret"]["planner"]["short"]["se"] is None
    assert part["best_fixed_rule"] in part["regret"]
    assert sum(part["statuses"].values()) == 2


def run(*arguments):
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    laboratory.add_commands(subparsers)
    add_commands(subparsers)
    given = parser.parse_args(["simulate", "validate", *map(str, arguments)])
    return given.handler(given)


def full(*_):
    raise OSError(28, "No space left on device")


def test_the_command_leaves_tables_figures_and_a_report(judged, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("analysis.validate.judge.Effort", lambda **asked: replace(TINY, **asked))
    given = ("--worlds", "short,any", "--seeds", 2, "--seed", 1, "--workers", 1)
    assert run(*given, "--out", tmp_path / "a", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    names = {"options.parquet", "plans.parquet", "planner_regret.png"}
    assert names <= {path.name for path in (tmp_path / "a").iterdir()}
    assert sorted(report["files"]) == sorted(map(str, (tmp_path / "a").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr("analysis.validate.figures.save_figures", full)
        with pytest.raises(OSError, match="No space"):
            run(*given, "--out", tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "the same command can be given again"
    monkeypatch.setattr("analysis.validate.judge.judge_worlds", lambda *_, **__: judged)
    assert run(*given, "--out", tmp_path / "b") == 0
    printed = capsys.readouterr().out
    assert "pure-bc" in printed
    assert "shuffled rewards" in printed
    first, again = (pd.read_parquet(tmp_path / x / "options.parquet") for x in "ab")
    pd.testing.assert_frame_equal(first, again)


def test_budgets_are_bought_in_rounds_too(worlds, monkeypatch):
    monkeypatch.setattr("analysis.spend.rounds.CLEAR", 1.1)
    options, _ = frames(*judge_worlds(worlds[:1], planner=planned, effort=TINY, buyer=in_rounds))
    (row,) = options[options["role"] == "rounds"].to_dict("records")
    assert 0.9 * row["budget"] < row["C_i"] <= row["budget"], "pilot and rounds are charged"
    assert 0 < row["J"] <= 1
    assert "rounds, all charged" in set(regrets(options)["rule"])


def test_what_cannot_be_judged_is_refused(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(InputError, match="exists: name a new folder"):
        run("--out", tmp_path / "full")
    with pytest.raises(InputError, match="at least one of each"):
        run("--seeds", 3, "--out", tmp_path / "new")
    with pytest.raises(SystemExit, match="2"):
        run("--workers", 0, "--out", tmp_path / "new")


def test_the_page_explains_every_status():
    page = (DOCS / "planner.md").read_text("utf-8")
    assert all(f"| `{status}` |" in page for status in STATUSES)
