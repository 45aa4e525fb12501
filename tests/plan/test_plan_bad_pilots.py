"""Bad pilots get an error that names the fault, or a warning and no ranking: never a confident number."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pilots
import pyarrow as pa
import pytest

from agentloop.run.settings import Settings
from analysis.cli import parser
from analysis.plan.costs import Prices
from analysis.plan.offers import Purchase
from analysis.plan.planner import plan
from analysis.plan.read import read_pilot
from analysis.plan.report import Plan
from occupancy.record.errors import DataError, InputError
from occupancy.record.recipe import preset
from occupancy.runs import Run, create_run, open_run

Rows = list[dict[str, Any]]
Change = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture
def spoil(recorded: Run, tmp_path: Path) -> Callable[..., Path]:
    """Copy the good pilot with its rows changed; None drops a row."""

    def write(episodes: Change = dict, turns: Change = dict, **info: Any) -> Path:
        run = create_run(tmp_path / "bad", recorded.recipe, {**recorded.info, **info})
        rows = {
            "episodes": recorded.read("episodes").to_pylist(),
            "turns": recorded.read("turns").to_pylist(),
        }
        changed: dict[str, Rows] = {
            name: [new for row in rows[name] if (new := change(row)) is not None]
            for name, change in (("episodes", episodes), ("turns", turns))
        }
        run.commit(changed)
        return run.folder

    return write


def planned(folder: Path, budget: float = 1e7) -> Plan:
    return plan(folder, budget=budget)


def test_no_teacher_turn(spoil: Callable[..., Path]) -> None:
    folder = spoil(turns=lambda row: row if row["author"] == "student" else None)
    with pytest.raises(DataError, match="has a teacher turn"):
        planned(folder)


@pytest.mark.parametrize("kind", ["continuation", "demo"])
def test_teacher_turns_that_are_gone(spoil: Callable[..., Path], kind: str) -> None:
    def halve(row: dict[str, Any]) -> dict[str, Any] | None:
        return None if row["kind"] == kind and row["task_id"] < "task-012" else row

    with pytest.raises(DataError, match="as many teacher turns"):
        planned(spoil(turns=halve))


def test_exchanged_authors(spoil: Callable[..., Path]) -> None:
    other = {"student": "teacher", "teacher": "student"}
    with pytest.raises(DataError, match="has a teacher turn"):
        planned(spoil(turns=lambda row: row | {"author": other[row["author"]]}))


def test_one_task_only(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="one task only"):
        planned(spoil(episodes=lambda row: row | {"cluster_id": "the only one"}))


@pytest.mark.parametrize("R", [0.0, 1.0])
def test_constant_reward(spoil: Callable[..., Path], R: float) -> None:
    with pytest.raises(DataError, match="successes and failures"):
        planned(spoil(episodes=lambda row: row | {"R": R}))


@pytest.mark.parametrize("R", [100.0, -0.5, float("nan")])
def test_a_reward_that_is_none(spoil: Callable[..., Path], R: float) -> None:
    wrong = lambda row: row | {"R": R if row["kind"] == "handback" else row["R"]}  # noqa: E731
    with pytest.raises(DataError, match=rf"has R={R} \("):
        planned(spoil(episodes=wrong))


def test_no_reward(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no student rollout has a reward"):
        planned(spoil(episodes=lambda row: row | {"R": None}))


def test_a_half_collected_pilot(recorded: Run, spoil: Callable[..., Path]) -> None:
    found = planned(spoil(n_tasks=60, tasks="train:60"))
    assert any("24 of the 60 tasks" in warning for warning in found.warnings)
    assert not any("of the 24 tasks" in warning for warning in planned(recorded.folder).warnings)


def test_tokens_all_zero(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="0 output tokens"):
        planned(spoil(turns=lambda row: row | {"output_tokens": 0}))


def test_some_tokens_zero(spoil: Callable[..., Path]) -> None:
    found = planned(spoil(turns=lambda row: row | {"output_tokens": row["output_tokens"] * (row["t"] % 2)}))
    assert any("have 0 output tokens" in warning for warning in found.warnings)


def test_same_policy_twice(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="both 'expert'"):
        planned(spoil(episodes=lambda row: row | {"policy": "expert"}))


def test_teacher_worse_than_student(spoil: Callable[..., Path]) -> None:
    """Rewards of the two exchanged: a warning, and no depth is recommended."""

    def exchange(row: dict[str, Any]) -> dict[str, Any]:
        bad = row["kind"] in ("continuation", "demo") or (row["kind"] == "handback" and row["K"] > 0)
        return row | {"R": 1 - row["R"] if bad else max(row["R"], float(row["rollout"] % 2))}

    found = planned(spoil(episodes=exchange))
    assert found.status == "no_preference"
    assert sum("swapped" in warning for warning in found.warnings) == 2


def test_two_environments(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="mixes 2 environments"):
        planned(spoil(episodes=lambda row: row | {"environment": f"toy {row['cluster_id'] < 'task-010'}"}))


def test_two_students(spoil: Callable[..., Path]) -> None:
    def second(row: dict[str, Any]) -> dict[str, Any]:
        return row | ({"policy": "pi_0"} if row["kind"] == "rollout" and row["rollout"] else {})

    with pytest.raises(DataError, match="rollouts of 2 students"):
        planned(spoil(episodes=second))


def test_no_handbacks(spoil: Callable[..., Path]) -> None:
    found = planned(spoil(episodes=lambda row: None if row["kind"] == "handback" else row))
    assert found.status == "no_preference"
    assert len(found.costs["inference"]) == pilots.A.T_max
    assert any("no hand-backs" in warning for warning in found.warnings)


@pytest.mark.parametrize(("said", "more"), [([], []), ([0, 8], [8])])
def test_depths_are_those_played_and_those_asked_for(
    spoil: Callable[..., Path], said: list[int], more: list[int]
) -> None:
    assert read_pilot(spoil(handback=said)).contexts.k.tolist() == [1, 2, 3, 5, *more]


def test_no_continuations(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no continuation"):
        planned(spoil(episodes=lambda row: row if row["kind"] == "rollout" else None))


def test_rollouts_and_demonstrations_alone_are_told_what_to_collect(spoil: Callable[..., Path]) -> None:
    kept = ("rollout", "demo")
    with pytest.raises(DataError, match=r"episodes of kind 'demo' and .* of kind 'rollout'") as told:
        planned(spoil(episodes=lambda row: row if row["kind"] in kept else None))
    found = re.search(r"`fewsteps (collect [^`]*)`", str(told.value))
    assert found is not None
    given = parser().parse_args(shlex.split(found[1]))
    assert (given.pilot, given.out, given.set) == (True, "PILOT", [f"T_max={pilots.A.T_max}"])
    assert (given.student, given.teacher) == ("pi_1", "expert")


def test_a_student_that_plays_each_task_always_alike_runs_out_of_contexts(
    recorded: Run, tmp_path: Path
) -> None:
    first: dict[str, Rows] = {}
    for name in ("episodes", "turns"):
        first[name] = [row for row in recorded.read(name).to_pylist() if row["rollout"] != 1]
    played = {name: [row for row in rows if row["kind"] == "rollout"] for name, rows in first.items()}
    why = []
    for times in (1, 2):
        run = create_run(tmp_path / f"{times}", recorded.recipe, recorded.info)
        run.commit(first)
        again = lambda row: row | {"rollout": 1, "episode_id": f"{row['episode_id']}-again"}  # noqa: E731
        if times == 2:
            run.commit({name: list(map(again, rows)) for name, rows in played.items()})
        why.append({left["why"] for left in planned(run.folder).left_out})
    alike = "the student always plays a task in the same way, so the pool has too few contexts"
    assert alike in why[1] - why[0], "of one rollout nobody knows"


def test_no_rollouts(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="no rollout of this run"):
        planned(spoil(episodes=lambda row: None if row["kind"] == "rollout" else row))


def test_no_demonstrations(spoil: Callable[..., Path]) -> None:
    found = planned(spoil(episodes=lambda row: None if row["kind"] == "demo" else row))
    assert any("no demonstrations" in warning for warning in found.warnings)


def test_capped_continuations(spoil: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="capped at K=3"):
        planned(spoil(episodes=lambda row: row | {"K": min(row["K"], 3)}))


def test_failures_are_counted(spoil: Callable[..., Path]) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        lost = row["kind"] == "continuation" and row["cluster_id"] < "task-004"
        return row | ({"status": "teacher_failed", "R": None} if lost else {})

    found = planned(spoil(episodes=fail))
    assert found.pilot["statuses"]["continuation"]["teacher_failed"] == 8
    assert any("8 of 48 continuations ended in an error" in warning for warning in found.warnings)


def test_prompt_tokens_unknown(spoil: Callable[..., Path]) -> None:
    folder = spoil(turns=lambda row: row | {"prompt_tokens": None})
    found = plan(folder, budget=50.0, axis="money", prices=Prices(output=10.0, prompt=1.0))
    assert any("money is of output tokens only" in warning for warning in found.warnings)


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run folder"):
        planned(tmp_path)


def test_run_without_episodes(recorded: Run, tmp_path: Path) -> None:
    create_run(tmp_path / "none", recorded.recipe, {})
    with pytest.raises(DataError, match="holds no episode"):
        planned(tmp_path / "none")


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_budget(budget: float) -> None:
    with pytest.raises(InputError, match="number above 0"):
        Purchase(budget)


def test_money_without_prices(recorded: Run) -> None:
    with pytest.raises(InputError, match="--prices"):
        plan(recorded.folder, budget=10.0, axis="money")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("output = -1", "at least 0"),
        ("prompt = 1.0", "'output'"),
        ("output = 1\ntea = 2", "'tea'"),
        ("=", "cannot"),
    ],
)
def test_wrong_price_table(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        Prices.from_toml(tmp_path / "prices.toml")


def test_good_pilot_is_untouched_by_planning(recorded: Run) -> None:
    before = open_run(recorded.folder).read("episodes")
    json.dumps(planned(recorded.folder).to_dict(), allow_nan=False)
    assert open_run(recorded.folder).read("episodes").equals(before)
    assert isinstance(before, pa.Table)


def test_a_run_of_filtered_or_chosen_contexts_is_no_pilot(recorded: Run, tmp_path: Path) -> None:
    """Its contexts would be taken for those of all rollouts, at turns drawn uniformly."""
    rows = {name: recorded.read(name).to_pylist() for name in ("episodes", "turns", "proposals")}
    for name, said in (("op-critical", "psi 'without_success'"), ("oec", "switch law 'fixed'")):
        run = create_run(tmp_path / name, preset(name, T_max=recorded.recipe.T_max), {"kind": "collect"})
        run.commit(rows)
        with pytest.raises(DataError, match=said):
            planned(run.folder)
        with pytest.raises(InputError, match="drawn uniformly"):
            Settings(replace(run.recipe, phi="all"), "s", "t", "1", pilot=True)


@pytest.mark.parametrize(
    ("table", "says"),
    [("episodes", r"holds episode \S+#demo\S+ 2 times"), ("turns", "1 rows are there twice .*turn 1")],
)
def test_rows_that_are_there_twice(recorded: Run, tmp_path: Path, table: str, says: str) -> None:
    run = create_run(tmp_path / "twice", recorded.recipe, recorded.info)
    rows = {name: recorded.read(name).to_pylist() for name in ("episodes", "turns")}
    run.commit(rows | {table: [*rows[table], rows[table][0]]})
    with pytest.raises(DataError, match=says):
        planned(run.folder)


def test_a_success_at_the_horizon_counts(recorded: Run, spoil: Callable[..., Path]) -> None:
    """An environment may score an episode that the horizon cut."""
    late = planned(spoil(episodes=lambda row: row | ({"status": "horizon"} if row["R"] else {})))
    assert [c.pass_at_1 for c in late.candidates] == [
        c.pass_at_1 for c in planned(recorded.folder).candidates
    ]


def test_few_demonstrations_are_named(spoil: Callable[..., Path]) -> None:
    """Of the three that are left one ended in an error."""
    found = planned(
        spoil(
            episodes=lambda row: None if row["kind"] == "demo" and row["task_id"] >= "task-003" else row,
            turns=lambda row: None if row["kind"] == "demo" and row["task_id"] >= "task-003" else row,
        )
    )
    assert any("is from 2 demonstrations" in warning for warning in found.warnings)


def test_demonstrations_that_all_failed_at_their_first_turn_have_no_price(spoil: Callable[..., Path]) -> None:
    failed = {"teacher_turns": 0, "length": 0, "R": None, "status": "teacher_failed"}
    found = planned(
        spoil(
            episodes=lambda row: row | (failed if row["kind"] == "demo" else {}),
            turns=lambda row: None if row["kind"] == "demo" else row,
        )
    )
    assert found.demonstrations is None
    assert any("has no demonstrations" in warning for warning in found.warnings)
