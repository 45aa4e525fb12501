"""A run whose episodes another harness drives is the run that `collect` would have made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from corridor_harness import Reader, served, setup_of
from toy_runs import attempts, rows, run_of

from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.runs import open_run

TASKS = {f"corridor/{i}": 2 + i % 5 for i in range(8)}
RECIPE = preset("op-short", K=3, n=2, T_max=12)
OTHERWISE = ("wall_s", "environment", "cluster_id", "task_kind", "prompt", "state_id")


def serve_all(folder: Path, setup: Any, tasks: dict[str, int] = TASKS) -> None:
    async def run() -> None:
        async with served(folder, setup) as harness:
            await harness.all_needed(tasks)

    asyncio.run(run())


@pytest.mark.parametrize(
    "recipe", [RECIPE, preset("op-critical", T_max=12), preset("pure-bc", n=2, T_max=12)]
)
def test_the_rows_are_those_of_collect(tmp_path: Path, recipe: Any) -> None:
    serve_all(tmp_path / "served", setup_of(recipe))
    collected = run_of(
        tmp_path / "collected",
        recipe,
        student=Reader(errs=0.4),
        teacher=Reader(tokens=11),
    )
    run = open_run(tmp_path / "served")
    for table in ("proposals", "episodes", "turns", "traces"):
        theirs = rows(collected, table, without=OTHERWISE)
        ours = rows(run, table, without=OTHERWISE)
        for row in (*ours, *theirs):
            for name in ("policy", "prefix_policy", "teacher", "messages"):
                row.pop(name, None)
        assert ours == theirs, table


def test_single_tasks_have_proposals_of_their_own_number(tmp_path: Path) -> None:
    serve_all(tmp_path, setup_of(RECIPE, n_of_task={"corridor/0": 3}), {"corridor/0": 2, "corridor/1": 3})
    tasks = [row["task_id"] for row in rows(open_run(tmp_path), "proposals")]
    assert {task: tasks.count(task) for task in tasks} == {"corridor/0": 3, "corridor/1": RECIPE.n}


def test_a_run_that_has_lost_its_ledger_is_not_served(tmp_path: Path) -> None:
    """A budget would be counted from nothing again."""
    serve_all(tmp_path, setup_of(RECIPE), {"corridor/0": 2})
    for file in tmp_path.glob("ledger.sqlite*"):
        file.unlink()
    with pytest.raises(DataError, match="restore the ledger"):
        serve_all(tmp_path, setup_of(RECIPE), {"corridor/0": 2})


def test_a_pilot_has_hand_backs_and_demonstrations(tmp_path: Path) -> None:
    setup = setup_of(preset("op-short", K="inf", T_max=12), pilot=True, handback=(0, 1), demo_tasks=2)
    serve_all(tmp_path, setup, dict(list(TASKS.items())[:3]))
    kinds = [row["kind"] for row in rows(open_run(tmp_path), "episodes")]
    assert {kind: kinds.count(kind) for kind in ("rollout", "demo", "continuation")} == {
        "rollout": 3,
        "demo": 2,
        "continuation": 3,
    }
    assert kinds.count("handback") >= 6


def test_every_turn_is_in_the_ledger_once(tmp_path: Path) -> None:
    student, teacher = Reader(errs=0.4), Reader(tokens=11)
    serve_all(tmp_path, setup_of(RECIPE, student=student, teacher=teacher))
    calls = attempts(open_run(tmp_path))
    assert sum(call["role"] == "teacher" for call in calls) == teacher.calls > 0
    assert sum(call["role"] == "student" for call in calls) == student.calls > 0
    assert all(call["state"] == "settled" for call in calls)
