import argparse
import json

import numpy as np
import pandas as pd
import pytest

from occupancy.record.errors import InputError, RunError
from simulate.commands import add_commands
from simulate.pipelines.summary import best, by_K, means


def run(*arguments):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    given = parser.parse_args(["simulate", *map(str, arguments)])
    return given.handler(given)


SMALL = ("--world", "middle", "--budgets", "4000,8000", "--K", "1,inf", "--r", "0,1", "--seeds", "4")
SMALL += ("--recipes", "pure-bc,op-short,op-success")  # The same for all, so that they are compiled once.


def test_a_sweep_leaves_a_tidy_table_figures_and_a_report(tmp_path, capsys):
    out = tmp_path / "lab"
    assert run(*SMALL, "--axis", "both", "--out", out, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    frame = pd.read_parquet(out / "outcomes.parquet")
    # Two axes, two budgets, four seeds: pure BC once, op-short at two K and two r, op-success at two r.
    assert len(frame) == report["pipelines"] == 2 * 2 * 4 * (1 + 4 + 2)
    assert set(frame["matched_on"]) == {"inference", "training"}
    assert not frame.isna().any().any()
    assert frame["J"].between(0, 1).all()
    spent = np.where(frame["matched_on"] == "inference", frame["C_i"], frame["C_tr"])
    assert (spent <= frame["budget"]).all()
    low, high = report["spent_over_budget"]
    assert 0.8 < low <= high <= 1
    assert [row["budget"] for row in report["best"]] == [4000, 8000, 4000, 8000]
    assert all(0 < row["J"] < report["J_teacher"] for row in report["best"])
    names = {"pass_at_1.png", "best_K.png", "r.png"}
    assert {p.name for p in (out / "training").iterdir()} == names
    assert all((out / "inference" / name).stat().st_size > 5000 for name in names)


def test_the_table_names_the_best_and_the_seed_decides(tmp_path, capsys):
    run(*SMALL, "--out", tmp_path / "a", "--seed", 3)
    printed = capsys.readouterr().out
    assert printed.startswith("Best at 4,000 tokens (inference): op-short K=")
    assert "not worse than the best" in printed
    run(*SMALL, "--out", tmp_path / "b", "--seed", 3)
    first, again = (pd.read_parquet(tmp_path / x / "outcomes.parquet") for x in "ab")
    pd.testing.assert_frame_equal(first, again)
    run(*SMALL, "--out", tmp_path / "c", "--seed", 4)
    assert (first["J"] != pd.read_parquet(tmp_path / "c" / "outcomes.parquet")["J"]).any()


def test_a_value_that_is_given_twice_counts_once(tmp_path, capsys):
    """Equal pipelines counted as several made every standard error too small, by sqrt(2) for two."""
    small = ("--world", "middle", "--K", 1, "--seeds", 3, "--json")
    for name, budgets, r in (("once", "4000,1", "0.5"), ("twice", "4000,4000,1", "0.5,.5")):
        assert run(*small, "--budgets", budgets, "--r", r, "--out", tmp_path / name) == 0
    captured = capsys.readouterr()
    once, twice = map(json.loads, captured.out.splitlines())
    assert twice["pipelines"] == once["pipelines"] == 6
    assert twice["best"] == once["best"]
    assert run(*small, "--budgets", 1, "--out", tmp_path / "nothing is bought") == 0
    assert capsys.readouterr().err == "", "a token axis without tokens is no warning"


def test_the_log_linear_student_and_rounds_are_asked_for_by_name(tmp_path, capsys):
    given = ("--student", "log-linear", "--steps", 5, "--rate", 4, "--rounds", 2)
    assert run(*SMALL, *given, "--out", tmp_path / "lab", "--json") == 0
    assert json.loads(capsys.readouterr().out)["student"].startswith("LogLinear(steps=5, rate=4.0,")
    assert set(pd.read_parquet(tmp_path / "lab" / "outcomes.parquet")["rounds"]) == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--world", "middle"), "--world and --out are needed; try: fewsteps simulate"),
        (("--world", "nowhere", "--out", "x"), "world 'nowhere': expected a family"),
        (("--world", "middle", "--out", "x", "--K", "0"), "K=0: expected a whole number"),
        (("--world", "search", "--out", "x", "--K", "8"), "K=8 with T_max=5"),
        (("--world", "middle", "--out", "x", "--recipes", "op-shrot"), "recipe='op-shrot'"),
        (("--world", "middle", "--out", "x", "--steps", "3"), "--steps is not for --student tabular"),
    ],
)
def test_bad_requests_are_refused(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        run(*arguments)
    assert not list(tmp_path.iterdir())


def test_a_used_folder_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match="exists: name a new folder"):
        run(*SMALL, "--out", tmp_path)


def outcomes(values):
    """Three recipes with two seeds each; `values` [3, 2] their J."""
    common = {
        "world": "w",
        "matched_on": "inference",
        "rounds": 1,
        "budget": 10,
        "recipe": "op-short",
        "r": 0.5,
    }
    costs = {"C_i": 10, "C_tr": 9, "r_tokens": 0.5, "r_tasks": 0.6}
    return pd.DataFrame(
        [
            common | costs | {"K": K, "seed": seed, "J": J}
            for K, row in zip(("1", "3", "inf"), values, strict=True)
            for seed, J in enumerate(row)
        ]
    )


def test_the_best_is_chosen_by_means_and_compared_seed_by_seed():
    # K=3 leads K=1 by exactly .01 in each seed, though the seeds differ by .4.
    frame = outcomes([(0.2, 0.6), (0.21, 0.61), (0.0, 0.9)])
    row = best(frame).iloc[0]
    assert (row["K"], row["J"]) == ("inf", pytest.approx(0.45))
    assert {near["K"] for near in row["not_worse"]} == {"1", "3", "inf"}
    row = best(outcomes([(0.2, 0.6), (0.21, 0.61), (0.0, 0.7)])).iloc[0]
    assert row["K"] == "3"
    assert {near["K"] for near in row["not_worse"]} == {"3", "inf"}
    table = means(frame)
    assert table["se"].iloc[0] == pytest.approx(0.2)
    assert list(by_K(frame)["K"]) == ["1", "3", "inf"]
    better = [frame.assign(r=r, J=frame["J"] + gain) for r, gain in ((1.0, 0.1), (0.0, 0.2))]
    of_K = by_K(pd.concat([frame, *better]))
    assert set(of_K["r"]) == {1.0}, "r = 0 buys nothing of the recipe"
    assert list(of_K["J"]) == pytest.approx([0.5, 0.51, 0.55])


def test_without_K_every_K_that_the_horizon_allows_is_swept(tmp_path, monkeypatch):
    def swept(world, *, recipes, **_):
        raise RunError(f"{world.horizon}: {[recipe.K for recipe in recipes]}")

    monkeypatch.setattr("simulate.pipelines.sweeping.sweep", swept)
    with pytest.raises(RunError, match=r"5: \[1, 2, 3, 5, inf\]"):
        run("--world", "search", "--out", tmp_path / "lab")
