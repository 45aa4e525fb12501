"""Comparisons of evaluations against obvious twins, inspect_ai's clustered errors, and simulation."""

from __future__ import annotations

import asyncio
import json
from fractions import Fraction
from itertools import combinations
from math import comb, isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import Corridors, drunk, expert

from agentloop.run.episode import NO_DATA
from agentloop.run.evaluate import Evaluation, evaluate, summarise_evaluation
from analysis.cli import main
from analysis.compare import compare
from analysis.compare.commands import _short, arms_of
from analysis.compare.paired import compare_scores, holm, pass_at_k
from analysis.compare.scores import read_scores
from analysis.curves.arms import arms_of as arms_of_plan
from analysis.plan.kept import training_of
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import Recipe
from occupancy.runs import create_run, open_run

A = {"q1": [1, 0, 0, 1], "q2": [0, 0, 0, 0], "q3": [1, 1, 0, 1], "q4": [0, 1, 0, 0]}
B = {"q1": [1, 1, 0, 1], "q2": [0, 1, 0, 0], "q3": [1, 1, 1, 1], "q4": [0, 0, 0, 1]}

DIFFERENCES = [0.25, 0.5, 0.5, 0.25, 0.0, 0.0, -0.5, 1.0]
CLUSTERS = ["a", "a", "b", "b", "c", "c", "c", "d"]
INSPECT = 0.21650635094610965
"""Of inspect_ai 0.3.285, `stderr(cluster=...)`, for these differences."""


def naive_clustered_se(values: list[float], cluster: list[str]) -> float:
    """Miller (2024), appendix A: all pairs within a cluster, with the correction C / (C - 1); no rounding."""
    n, C, exact = len(values), len(set(cluster)), [*map(Fraction, values)]
    off = [value - sum(exact) / n for value in exact]
    total = sum(off[i] * off[j] for i in range(n) for j in range(n) if cluster[i] == cluster[j])
    return sqrt(total * C / (C - 1)) / n


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(won: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(won)))
    subsets = list(combinations(won, k))
    assert pass_at_k(len(won), sum(won), k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "has no task, or one twice"),
        ({1: [1], "1": [0]}, "has no task, or one twice"),
        ({"q1": 1}, "has 1 for task 'q1'"),
        ({"q1": "1"}, "has '1' for task 'q1'"),
        ({"q1": [None]}, r"has \[None\] for task 'q1'"),
        ({"q1": [float("nan")]}, r"has \[nan\] for task 'q1'"),
        ([{"q1": [1]}, {"q2": [1]}], "no task has k=1 attempts in every training of a"),
    ],
)
def test_rewards_that_are_none_are_one_line(given: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        compare({"a": given, "b": A})


def test_pass_at_k_does_not_overflow() -> None:
    assert pass_at_k(10_000, 10, 5_000) == pytest.approx(1 - comb(9_990, 5_000) / comb(10_000, 5_000))
    assert np.isnan(pass_at_k(3, 1, 4))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_holm_is_closed_testing_with_bonferroni(p: list[float]) -> None:
    """Adjusted: the largest of |S| min(p of S), cut at 1, over all sets S that hold the hypothesis."""
    index = range(len(p))
    sets = [s for size in range(1, len(p) + 1) for s in combinations(index, size)]
    for at, adjusted in enumerate(holm(p)):
        assert adjusted == pytest.approx(
            max(min(1.0, len(s) * min(p[i] for i in s)) for s in sets if at in s)
        )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12))
def test_a_paired_difference_against_its_twin(rows: list[tuple[str, float, float]]) -> None:
    cluster = {str(i): c for i, (c, _, _) in enumerate(rows)}
    a, b = ({str(i): [row[at] >= 0.5] for i, row in enumerate(rows)} for at in (1, 2))
    scores = read_scores({"a": a, "b": b})
    scores["cluster_id"] = scores["task_id"].map(cluster)
    (found,) = compare_scores(scores).differences
    d = [float(b[q][0]) - float(a[q][0]) for q in a]
    assert found.difference == pytest.approx(sum(d) / len(d))
    if len(set(cluster.values())) == 1:
        assert found.se is None
        assert found.interval == "none"
    else:
        assert found.se == pytest.approx(naive_clustered_se(d, list(cluster.values())), abs=1e-8)


def test_the_errors_are_those_of_inspect_ai() -> None:
    d, cluster = DIFFERENCES, CLUSTERS
    assert naive_clustered_se(d, cluster) == pytest.approx(INSPECT)
    a = {str(i): [0, 0, 0, 0] for i in range(len(d))}
    b = {str(i): [0, 0, 0, 0] for i in range(len(d))}
    for i, value in enumerate(d):
        (b if value > 0 else a)[str(i)] = [1] * round(4 * abs(value)) + [0] * (4 - round(4 * abs(value)))
    scores = read_scores({"a": a, "b": b})
    scores["cluster_id"] = scores["task_id"].map(lambda task: cluster[int(task)])
    assert compare_scores(scores).differences[0].se == pytest.approx(INSPECT)


def test_the_recorded_error_is_what_inspect_ai_computes() -> None:
    scorer = pytest.importorskip("inspect_ai.scorer")
    samples = [
        scorer.SampleScore(score=scorer.Score(value=value), sample_metadata={"task": name})
        for value, name in zip(DIFFERENCES, CLUSTERS, strict=True)
    ]
    assert scorer.stderr(cluster="task")(samples) == pytest.approx(INSPECT)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 1), (0, 1), (1, 0)])
def test_where_all_tasks_agree_everything_is_finite(a: int, b: int) -> None:
    tasks = [f"q{i}" for i in range(10)]
    found = compare({"a": {q: [a, a] for q in tasks}, "b": {q: [b, b] for q in tasks}}, k=(1, 2))
    (d,) = found.differences
    assert d.interval == "newcombe"
    assert d.low is not None
    assert d.high is not None
    assert d.detectable is not None
    assert d.low < d.high
    assert -1 <= d.low <= d.difference <= d.high <= 1
    assert d.p == (1.0 if a == b else 2 / 2**10)
    assert isfinite(d.detectable)
    assert 0.1 < d.detectable < 1
    for rate in found.rates:
        assert rate.interval == "wilson"
        assert rate.high - rate.low > 0.2  # type: ignore[operator]


@pytest.mark.parametrize("constant", [0, 1])
def test_an_arm_whose_tasks_all_agree_keeps_its_uncertainty(constant: int) -> None:
    """The difference is not surer than the rates: 20 tasks of all-1 leave 1 down to .839."""
    varied = {f"q{i}": [int(i == 3), 0, 0] if constant else [int(i != 3), 1, 1] for i in range(20)}
    other = {q: [constant] * 3 for q in varied}
    found = compare({"a": varied, "b": other})
    (d,), (a, b) = found.differences, found.rates
    assert (d.interval, a.interval, b.interval) == ("newcombe", "t", "wilson")
    assert (d.high - d.low) ** 2 >= (b.high - b.low) ** 2 > 0.1**2  # type: ignore[operator]
    assert d.low <= d.difference <= d.high  # type: ignore[operator]
    turned = compare({"b": other, "a": varied}).differences[0]
    assert (turned.low, turned.high) == pytest.approx((-d.high, -d.low))  # type: ignore[operator]
    assert turned.p == pytest.approx(d.p)
    # A small difference is not found where the interval holds 0.
    near = {q: [constant] * 19 + [1 - constant] for q in varied} | {"q0": [constant] * 20}
    (close,) = compare({"a": near, "b": {q: [constant] * 20 for q in near}}).differences
    assert close.low < 0 < close.high  # type: ignore[operator]
    assert not close.found


def test_one_task_has_no_error_and_never_0() -> None:
    found = compare({"a": {"q": [0, 1, 0]}, "b": {"q": [1, 1, 1]}, "c": {"q": [1, 1, 0]}})
    for d in found.differences:
        assert (d.se, d.low, d.high, d.p, d.p_holm, d.detectable, d.interval) == (*[None] * 6, "none")
        assert not d.found
    assert all(r.se is None and r.interval == "none" for r in found.rates)


def test_only_tasks_of_both_are_compared_and_the_others_are_counted() -> None:
    (d,) = compare({"a": A | {"only": [1]}, "b": B | {"x": [0], "y": [1]}}).differences
    assert (d.tasks, d.only_a, d.only_b) == (4, 1, 2)
    assert d.difference == compare({"a": A, "b": B}).differences[0].difference
    with pytest.raises(DataError, match="no task in common"):
        compare({"a": {"q": [1]}, "b": {"r": [1]}})


def test_every_pair_or_all_against_one() -> None:
    arms = {"a": A, "b": B, "c": A}
    assert [(d.a, d.b) for d in compare(arms).differences] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [(d.a, d.b) for d in compare(arms, baseline="b").differences] == [("b", "a"), ("b", "c")]
    with pytest.raises(InputError, match="baseline 'd'"):
        compare(arms, baseline="d")


def test_trainings_with_other_seeds_widen_the_error_by_their_spread() -> None:
    one = compare({"a": A, "b": B}).differences[0]
    same = compare({"a": [A, A], "b": [B, B]}).differences[0]
    assert same.se == pytest.approx(one.se)
    spread = compare({"a": [A, A], "b": [B, {q: [1] * 4 for q in B}]}).differences[0]
    tasks_alone = compare({"a": A, "b": {q: [*B[q], 1, 1, 1, 1] for q in B}}).differences[0]
    assert spread.difference == pytest.approx(tasks_alone.difference)
    assert spread.se > tasks_alone.se  # type: ignore[operator]


def test_intervals_hold_their_level_where_trainings_differ() -> None:
    """400 draws of 3 trainings an arm, 60 tasks, equal arms: a nominal 5 % of intervals exclude 0."""
    rng = np.random.default_rng(1)

    def trainings(task: np.ndarray) -> list[dict[str, list[int]]]:
        made = []
        for shift in rng.normal(0, 0.5, 3):
            p = 1 / (1 + np.exp(-(task + shift + rng.normal(0, 0.3, len(task)))))
            made.append({str(q): list((rng.random(2) < p_q).astype(int)) for q, p_q in enumerate(p)})
        return made

    excluded = 0
    for _ in range(400):
        task = rng.normal(0, 1.5, 60)
        d = compare({"a": trainings(task), "b": trainings(task)}).differences[0]
        excluded += d.p < 0.05  # type: ignore[operator]
    assert 0.01 < excluded / 400 < 0.09


def test_the_detectable_difference_is_found_in_four_of_five() -> None:
    rng = np.random.default_rng(2)
    found, seen = 0, []
    for _ in range(300):
        base = rng.random(120)
        a = {str(q): list((rng.random(4) < p).astype(int)) for q, p in enumerate(base)}
        b = {str(q): list((rng.random(4) < min(1.0, p + 0.08)).astype(int)) for q, p in enumerate(base)}
        d = compare({"a": a, "b": b}).differences[0]
        seen.append(d.detectable)
        found += d.found
    true_gain = float(np.mean([min(1.0, p + 0.08) - p for p in np.linspace(0, 1, 1000)]))
    # At the true gain the power follows from the detectable difference; both must agree.
    from scipy.stats import norm

    se = float(np.mean(seen)) / (1.96 + 0.84)
    assert found / 300 == pytest.approx(norm.cdf(true_gain / se - 1.96), abs=0.08)


def test_frames_have_a_row_each() -> None:
    found = compare({"a": A, "b": B, "c": B}, k=(1, 4))
    assert list(found.to_pandas()["difference"]) == [d.difference for d in found.differences]
    assert len(found.rates_to_pandas()) == 6
    with pytest.raises(InputError, match="k=5: a has 4 attempts"):
        compare({"a": A, "b": B}, k=(5,))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("evaluations")
    for name, policy, seed in (("drunk", drunk, 2), ("again", drunk, 5), ("expert", expert, 2)):
        settings = Evaluation(name, "8", 4, seed=seed)
        asyncio.run(evaluate(base / name, settings, environments=Corridors(), policy=policy))
    return {path.name: str(path) for path in base.iterdir()}


def test_the_command_prints_json_or_tables(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    drunks = f"drunk={folders['drunk']},{folders['again']}"
    assert main(["compare", drunks, folders["expert"], "--k", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    python = compare(
        {"drunk": [folders["drunk"], folders["again"]], folders["expert"]: folders["expert"]}, k=(1, 4)
    )
    assert told["differences"][0]["difference"] == python.differences[0].difference > 0
    assert [rate["k"] for rate in told["rates"]] == [1, 4, 1, 4]
    assert main(["compare", drunks, folders["expert"]]) == 0
    shown = capsys.readouterr().out
    assert "95 % interval" in " ".join(shown.split())
    answer = "No difference found between drunk and expert: "
    assert " ".join(shown.split()).startswith(answer)
    assert max(map(len, shown.splitlines())) <= 80


def test_a_folders_name_may_hold_what_separates_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    low, high, plain = "runs/lr=1e-5/eval", "runs/lr=2e-5/eval", "a,b"
    for folder in (low, high, plain):
        Path(folder).mkdir(parents=True)
    assert arms_of([f"x={low}", high, f"y={low},{high}", f"a=b={plain}"]) == {
        "x": [low],
        high: [high],
        "y": [low, high],
        "a=b": [plain],
    }
    assert arms_of(["x=no,none", "none"]) == {"x": ["no", "none"], "none": ["none"]}


def test_bad_input_is_one_line(folders: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        ([folders["drunk"]], "1 evaluation to compare"),
        ([folders["drunk"], folders["drunk"]], "given twice"),
        ([folders["drunk"], "missing"], "missing is no run folder"),
        ([folders["drunk"], folders["expert"], "--k", "9"], "k=9"),
        ([folders["drunk"], folders["expert"], "--k", "0"], "--k"),
    ):
        assert main(["compare", *arguments]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1


@pytest.mark.parametrize("status", NO_DATA)
def test_every_attempt_without_a_reward_counts_as_evaluate_counts_it(tmp_path: Path, status: str) -> None:
    """Its row has the score 0: `--scored` leaves it out, and it is told otherwise."""
    settings, arms = Evaluation("drunk", "4", 2), []
    for name, policy in (("a", drunk), ("b", expert)):
        asyncio.run(evaluate(tmp_path / name, settings, environments=Corridors(), policy=policy))
        run, bad = open_run(tmp_path / name), create_run(tmp_path / f"bad-{name}", *_like(tmp_path / name))
        tables = {table: run.read(table).to_pylist() for table in ("episodes", "evaluations")}
        for row in tables["evaluations"][::3]:
            row |= {"status": status, "score": 0.0}
        for row in tables["episodes"][::3]:
            row |= {"status": status, "R": None}
        bad.commit(tables)
        arms.append(bad)
    told = summarise_evaluation(arms[0])
    for scored, name in ((False, "success"), (True, "success_of_scored")):
        found = compare([run.folder for run in arms], scored=scored)
        assert found.rates[0].attempts == told[name]["n"]
        counts = [told[name][part] for part in ("mean", "cluster_se", "low", "high")]
        rate = found.rates[0]
        assert [rate.rate, rate.se, rate.low, rate.high] == pytest.approx(counts), "unequal attempts, too"
        assert "ended in an error" in found.cautions[0]
    assert (told["success"]["n"], told["success_of_scored"]["n"]) == (8, 5)
    rows = [row for row in arms[0].read("evaluations").to_pylist() if row["status"] != status]
    arm = arms_of_plan(5)[0].to_dict()
    kept = {"arm": arm, "demo_tokens": 1, "continuation_tokens": 0, "seed": 0, "seconds": 0.0}
    training = training_of(kept, rows, success_at=1.0)
    scored = [told["success_of_scored"][part] for part in ("mean", "cluster_se")]
    assert [training.pass_at_1, training.se] == pytest.approx(scored), "the planner's trainings, too"
    none = create_run(tmp_path / "none", *_like(tmp_path / "a"))
    lost = [row | {"status": status} for row in open_run(tmp_path / "a").read("evaluations").to_pylist()]
    none.commit({"evaluations": lost})
    with pytest.raises(
        DataError, match=f"all 8 attempts of .* ended in an error .{status}.*into a new folder"
    ):
        compare([tmp_path / "b", none.folder])


def test_an_evaluation_that_is_not_whole_is_told(tmp_path: Path) -> None:
    settings = Evaluation("drunk", "4", 3)
    for name, policy in (("a", drunk), ("b", expert)):
        asyncio.run(evaluate(tmp_path / name, settings, environments=Corridors(), policy=policy))
    part = create_run(tmp_path / "part", *_like(tmp_path / "a"))
    part.commit({"evaluations": open_run(tmp_path / "a").read("evaluations").to_pylist()[:7]})
    found = compare([part.folder, tmp_path / "b"])
    assert found.rates[0].attempts == 7
    assert "5 of 12 attempts are missing" in found.cautions[0]
    assert not any("missing" in said for said in compare([tmp_path / "a", tmp_path / "b"]).cautions)
    empty = create_run(tmp_path / "empty", *_like(tmp_path / "a"))
    with pytest.raises(DataError, match="none of its 12 attempts: restore its parts/"):
        compare([empty.folder, tmp_path / "b"])


def _like(folder: Path) -> tuple[Recipe, dict[str, Any]]:
    run = open_run(folder)
    return run.recipe, run.info


def test_tasks_that_scored_attempts_leave_out_are_told() -> None:
    frame = read_scores({"a": [A, A], "b": B})
    frame["no_data"] = (frame["arm"] == "a") & (frame["training"] == 1) & (frame["task_id"] == "q3")
    found = compare_scores(frame, scored=True)
    assert any("1 of 4 tasks were not evaluated for every training" in one for one in found.cautions)


def test_folders_are_shown_by_where_they_differ_unless_that_is_another_arms_name(
    folders: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", folders["drunk"], folders["again"]]) == 0
    assert capsys.readouterr().out.startswith("No difference found between drunk and again: ")
    assert main(["compare", f"again={folders['expert']}", folders["drunk"], folders["again"], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [rate["arm"] for rate in told["rates"]] == ["again", folders["drunk"], folders["again"]]
    assert _short(arms_of([f"again={folders['expert']}", folders["drunk"], folders["again"]])) == {}
