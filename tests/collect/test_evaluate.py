"""Evaluation: every attempt counts, both standard errors, resume."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_world import Corridors, drunk, expert, raising

from agentloop.run.collect import tasks_of
from agentloop.run.evaluate import Evaluation, evaluate, success, summarise_evaluation
from agentloop.types import Environment, EnvironmentFailed, Reply, Task
from analysis.cli import main
from occupancy.record.errors import DataError, InputError, RunError
from occupancy.runs import Run


def evaluated(
    folder: Path, *, worlds: Corridors | None = None, policy: object = drunk, attempts: int = 3
) -> Run:
    settings = Evaluation("drunk", "6", attempts, seed=2)
    return asyncio.run(
        evaluate(folder, settings, environments=worlds or Corridors(), policy=policy)  # type: ignore[arg-type]
    )


def test_every_attempt_is_an_episode_and_a_score(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "run")
    scores = run.read("evaluations").to_pylist()
    episodes = run.read("episodes").to_pylist()
    assert {(s["task_id"], s["attempt"]) for s in scores} == {
        (f"corridor/{t}", i) for t in range(6) for i in range(3)
    }
    assert len(scores) == len(episodes) == 18
    assert {e["kind"] for e in episodes} == {"evaluation"}
    assert [s["score"] for s in scores] == [e["R"] for e in episodes]
    assert len({e["seed"] for e in episodes}) == 6, "attempts at a task share its environment's seed"
    lengths = {(e["task_id"], e["length"]) for e in episodes}
    assert len(lengths) > 6, "and not the policy's"


def test_the_same_settings_give_the_same_scores_and_a_stopped_one_goes_on(tmp_path: Path) -> None:
    whole = evaluated(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluated(tmp_path / "stopped", policy=raising(drunk, KeyboardInterrupt, at=[40]))
    resumed = evaluated(tmp_path / "stopped")
    assert resumed.read("evaluations").equals(whole.read("evaluations"))
    with pytest.raises(DataError, match="attempts=3"):
        evaluated(tmp_path / "stopped", attempts=4)


def test_an_attempt_ends_on_a_bad_parse_where_the_evaluation_says_so(tmp_path: Path) -> None:
    class Deaf(Corridors):
        def change(self, corridor: Any) -> None:
            step = corridor.step

            async def strict(text: str) -> Reply:
                return replace(await step(text), parse_status="ok" if text == "forward" else "odd")

            corridor.step = strict

    settings = Evaluation("drunk", "6", 3, seed=2, end_on=("odd",))
    run = asyncio.run(evaluate(tmp_path / "run", settings, environments=Deaf(), policy=drunk))
    status = summarise_evaluation(run)["status"]
    assert set(status) == {"bad_parse", "finished"}
    bad = [e for e in run.read("episodes").to_pylist() if e["status"] == "bad_parse"]
    assert all(e["R"] == 0 for e in bad)
    with pytest.raises(DataError, match="end_on"):
        evaluated(tmp_path / "run")


def test_attempts_that_broke_count_as_failures_and_are_told_apart(tmp_path: Path) -> None:
    summary = summarise_evaluation(evaluated(tmp_path / "run", worlds=Corridors(fails_at=4), policy=expert))
    assert summary["status"] == {"environment_error": 9, "finished": 9}
    assert summary["success"]["mean"] == 0.5
    assert summary["success_of_scored"]["mean"] == 1.0
    assert summary["success_of_scored"]["clusters"] == 3


def test_a_task_that_cannot_be_opened_is_a_failed_attempt(tmp_path: Path) -> None:
    class Closed(Corridors):
        shut: tuple[str, ...] = ("corridor/0",)

        def open(self, task: Task) -> AbstractAsyncContextManager[Environment]:
            if task.task_id in self.shut:
                raise EnvironmentFailed("no such corridor")
            return super().open(task)

    summary = summarise_evaluation(evaluated(tmp_path / "run", worlds=Closed(), policy=expert))
    assert summary["status"] == {"environment_error": 3, "finished": 15}
    assert (summary["success"]["mean"], summary["success_of_scored"]["mean"]) == (15 / 18, 1.0)
    run = evaluated(tmp_path / "run", policy=expert)
    assert len(run.read("evaluations")) == len(run.read("episodes")) == 18
    assert summarise_evaluation(run)["success"]["mean"] == 1.0, "the same command has tried it again"
    Closed.shut = tuple(f"corridor/{i}" for i in range(6))
    with pytest.raises(RunError, match="no such corridor"):
        evaluated(tmp_path / "none", worlds=Closed())


def rows_of(wins: list[list[bool]]) -> list[dict[str, Any]]:
    """A row an attempt; each list has those of a task."""
    return [
        {"task_id": str(task), "cluster_id": str(task), "attempt": attempt, "score": float(won)}
        for task, attempts in enumerate(wins)
        for attempt, won in enumerate(attempts)
    ]


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=2, max_size=8))
def test_both_errors_are_those_of_the_formulas(wins: list[list[bool]]) -> None:
    found = success(rows_of(wins))
    by_task, by_evaluation = np.mean(wins, axis=1), np.mean(wins, axis=0)
    assert math.isclose(found.mean, np.mean(wins))
    # With as many attempts at each task the ratio's error is that of the mean of task means.
    assert found.cluster_se == pytest.approx(by_task.std(ddof=1) / math.sqrt(len(wins)))
    assert found.evaluation_se == pytest.approx(by_evaluation.std(ddof=1) / math.sqrt(2))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), min_size=2, max_size=6))
def test_all_tasks_count_the_same_however_many_attempts_they_have(wins: list[list[bool]]) -> None:
    found, by_task = success(rows_of(wins)), [np.mean(attempts) for attempts in wins]
    assert found.mean == pytest.approx(np.mean(by_task))
    expected = np.std(by_task, ddof=1) / math.sqrt(len(wins))
    assert found.cluster_se == pytest.approx(expected, abs=1e-9)
    assert found.n == sum(map(len, wins))


def test_one_task_or_one_evaluation_has_no_such_error() -> None:
    row = {"task_id": "a", "cluster_id": "a", "attempt": 0, "score": 1.0}
    assert (success([row]).cluster_se, success([row]).evaluation_se) == (None, None)
    assert (success([row]).low, success([row]).high, success([row]).interval) == (None, None, "none")


@pytest.mark.parametrize("won", [False, True])
def test_where_all_or_nothing_was_won_the_interval_is_finite_and_says_how_it_was_made(won: bool) -> None:
    """Its error is 0, which is no knowledge: of n tasks all won, p >= n / (n + 1.96^2) with 95 %."""
    rows = [
        {"task_id": str(i // 2), "cluster_id": str(i // 2), "attempt": i % 2, "score": float(won)}
        for i in range(12)
    ]
    found = success(rows)
    edge = 6 / (6 + 1.959964**2)
    low, high = (edge, 1.0) if won else (0.0, 1 - edge)
    assert (found.interval, found.cluster_se) == ("wilson", 0.0)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_interval_is_students_over_tasks() -> None:
    rows = [{"task_id": str(i), "cluster_id": str(i), "attempt": 0, "score": float(i < 3)} for i in range(5)]
    found = success(rows)
    half = 2.776445 * math.sqrt(0.6 * 0.4 / 4)
    assert found.interval == "t"
    assert (found.low, found.high) == (pytest.approx(max(0.6 - half, 0.0), abs=1e-6), 1.0)
    assert found.low is not None
    assert found.low > 0 or half > 0.6


def test_no_attempts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attempts=0"):
        Evaluation("drunk", "6", 0)
    with pytest.raises(InputError, match="names no task"):
        asyncio.run(evaluate(tmp_path, Evaluation("drunk", "0"), environments=Corridors(), policy=drunk))


def test_the_table_says_which_error_is_sampling_noise_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seams = ["--env", "toy_world:open_corridors", "--policy", "drunk", "--tasks", "4", "--attempts", "2"]
    assert main(["evaluate", *seams, "--out", str(tmp_path / "run")]) == 0
    assert "sampling noise" in " ".join(capsys.readouterr().out.split())


def test_a_spec_of_several_splits_names_the_tasks_of_all() -> None:
    class Split(Corridors):
        def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
            return [Task(f"{spec}/{i}", f"{spec}/{i}", spec) for i in range(2)]

    named = tasks_of(Split(), "seen+unseen", seed=0)
    assert [task.task_id for task in named] == ["seen/0", "seen/1", "unseen/0", "unseen/1"]
    with pytest.raises(InputError, match="named before"):
        tasks_of(Split(), "seen+seen", seed=0)


def test_several_policies_are_evaluated_in_one_call_each_into_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--env", "toy_world:open_corridors", "--tasks", "4", "--attempts", "2", "--json"]
    several = ["evaluate", *given, "--policy", "drunk", "--policy", "expert", "--out", str(tmp_path / "both")]
    assert main(several) == 0
    first = capsys.readouterr().out
    drunk_summary, expert_summary = json.loads(first)["evaluations"]
    assert expert_summary["success"]["mean"] == 1.0
    assert main(["evaluate", *given, "--policy", "drunk", "--out", str(tmp_path / "one")]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert drunk_summary == alone | {"folder": str(tmp_path / "both" / "drunk")}
    assert main(several) == 0
    assert capsys.readouterr().out == first, "finished ones are not played again"
    assert main([*several[:-2], "--policy", "drunk", *several[-2:]]) == 2
    assert "would share the folder" in capsys.readouterr().err
