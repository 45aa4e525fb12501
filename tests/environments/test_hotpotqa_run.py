"""HotpotQA through Algorithm 1, evaluation and the command line."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hotpotqa_world import world, write_folder
from toy_runs import rows, same, truncate

from agentloop.environments.hotpotqa.__main__ import main as hotpotqa_main
from agentloop.environments.hotpotqa.rescore import rescore
from agentloop.policies.by_name import open_policy
from agentloop.run.collect import Settings, Setup, collect
from analysis.cli import main
from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.runs import Run


def collected(folder: Path, K: int | str, *, format: str = "tags") -> Run:
    made = world(format=format)
    recipe = preset("op-short", n=3, K=K, T_max=5)
    settings = Settings(recipe=recipe, student="scripted", teacher="teacher", tasks="train", seed=1)
    student, teacher = open_policy("scripted", made), open_policy("teacher", made)
    return asyncio.run(collect(folder, Setup(settings, made, student, teacher)))


def test_the_papers_recipe_runs_and_can_be_cut(tmp_path: Path) -> None:
    whole = collected(tmp_path / "inf", "inf")
    for K in (1, 2, 3):
        same(collected(tmp_path / f"{K}", K), truncate(whole, K, tmp_path / f"cut-{K}"))


def test_only_the_teachers_turns_are_trained_on_in_both_formats(tmp_path: Path) -> None:
    for format, role in (("tags", "user"), ("tools", "tool")):
        run = collected(tmp_path / format, 3, format=format)
        assert len(rows(run, "traces")) == 15
        for trace in rows(run, "traces"):
            messages = json.loads(trace["messages"])
            assert all(m["train"] == (m["author"] == "teacher") for m in messages)
            seen = {
                m["role"] for m in messages if "Doc 1 (Title" in m["content"] and m["author"] == "environment"
            }
            assert seen <= {role}


def test_rescoring_finds_what_was_rewarded(tmp_path: Path) -> None:
    run, made = collected(tmp_path / "run", 2), world()
    groups = {row["kind"]: row for row in rescore(run.folder, made.catalogue)}
    episodes = [e for e in rows(run, "episodes") if e["R"] is not None]
    for kind, group in groups.items():
        own = [e for e in episodes if e["kind"] == kind]
        by_task = [[e["R"] for e in own if e["task_id"] == task] for task in {e["task_id"] for e in own}]
        assert group["episodes"] == len(own)
        assert group["exact_match"] == pytest.approx(fmean(map(fmean, by_task))), "all tasks count the same"
        assert group["search_r1"] == group["exact_match"] <= group["f1"], "plain words: both scorers agree"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEWSTEPS_DATA", str(write_folder(tmp_path / "data")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_command_line_collects_and_evaluates(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["--env", "hotpotqa", "--json", "--env-set", "k=2"]
    collect_ = ["collect", *shared, "--student", "scripted", "--teacher", "teacher", "--tasks", "train"]
    assert main([*collect_, "--out", str(data / "run"), "--set", "K=2", "--set", "n=2"]) == 0
    assert json.loads(capsys.readouterr().out)["proposals"] == {"accepted": 10}
    evaluate = ["evaluate", *shared, "--policy", "teacher", "--tasks", "test", "--attempts", "3"]
    assert main([*evaluate, "--out", str(data / "evaluation")]) == 0
    success = json.loads(capsys.readouterr().out)["success"]
    assert success == {
        "mean": 1.0,
        "low": pytest.approx(3 / (3 + 1.959964**2)),
        "high": 1.0,
        "interval": "wilson",
        "cluster_se": 0.0,
        "evaluation_se": 0.0,
        "n": 9,
        "clusters": 3,
        "evaluations": 3,
    }
    assert hotpotqa_main(["score", str(data / "run")]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert {row["kind"]: row["golds_empty"] for row in scored} == {"rollout": 0, "continuation": 0}


def test_golds_that_normalise_to_nothing_are_counted_where_scores_are_shown() -> None:
    made = world()
    tasks = made.tasks("test")
    assert made.cautions(tasks) == ()
    question = made.catalogue.question(tasks[0].task_id)
    made.catalogue.by_id[tasks[0].task_id] = replace(question, golds=("The", "Anna"))
    (caution,) = made.cautions(tasks)
    assert f"1 of {len(tasks) + 1} golds normalise to nothing ('The')" in caution


def test_the_benchmarks_own_commands(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hotpotqa_main(["index"]) == 0
    assert "24 passages" in json.loads(capsys.readouterr().out)["index"]
    assert hotpotqa_main(["golds"]) == 0
    assert json.loads(capsys.readouterr().out)["golds"] == 8
    assert hotpotqa_main(["score", str(data / "no run")]) == 2
    assert "no run folder" in capsys.readouterr().err
    assert hotpotqa_main(["score", ""]) == 2
    assert "is empty: expected a name" in capsys.readouterr().err


def test_runs_of_other_benchmarks_are_not_rescored(tmp_path: Path) -> None:
    from occupancy.runs import create_run

    run = create_run(tmp_path / "run", preset("op-short"), {"environment": "alfworld 0.4.2"})
    with pytest.raises(DataError, match="expected a run of hotpotqa"):
        rescore(run.folder, world().catalogue)
