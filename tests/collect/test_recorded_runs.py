"""A recorded run as student and teacher: the same run again, for nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import drunk, expert

from agentloop.policies.recorded import open_recorded
from agentloop.types import Ask, PolicyFailed
from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.runs import create_run

RECIPE = preset("op-short", K="inf", n=2, T_max=12)


def test_a_recorded_run_gives_the_same_run(tmp_path: Path) -> None:
    first = run_of(tmp_path / "first", RECIPE)
    recorded: Any = open_recorded(str(first.folder))
    again = run_of(tmp_path / "again", RECIPE, student=recorded, teacher=recorded)
    same(again, first, calls=False)
    short = preset("op-short", K=2, n=1, T_max=12)
    cut = run_of(tmp_path / "cut", short, student=recorded, teacher=recorded)
    assert rows(cut, "traces") == rows(run_of(tmp_path / "direct", short), "traces")


def test_a_teachers_choice_of_turn_is_recorded_too(tmp_path: Path) -> None:
    from test_collect_switching import deciding

    first = run_of(
        tmp_path / "first",
        preset("leap", n=2, T_max=6),
        teacher=deciding,
        switch_prompt="The attempt has {T} turns.",
    )
    assert any(a["t"] == 0 for a in attempts(first))
    recorded: Any = open_recorded(str(first.folder))
    again = run_of(
        tmp_path / "again",
        preset("leap", n=2, T_max=6),
        student=recorded,
        teacher=recorded,
        switch_prompt="The attempt has {T} turns.",
    )
    assert rows(again, "proposals") == rows(first, "proposals")


def test_what_was_not_recorded_is_refused(tmp_path: Path) -> None:
    first = run_of(tmp_path / "first", RECIPE)
    recorded: Any = open_recorded(str(first.folder))
    other = run_of(tmp_path / "other", RECIPE, student=drunk, teacher=recorded, seed=4)
    errors = {e["error"] for e in rows(other, "episodes") if e["status"] == "teacher_failed"}
    assert errors
    assert all("recorded" in error for error in errors)
    env: Any = None
    with pytest.raises(PolicyFailed, match="has no turn 3 of nobody"):
        asyncio.run(recorded(Ask((), 3, 0, env, "nobody")))
    empty = create_run(tmp_path / "empty", RECIPE, {})
    with pytest.raises(DataError, match="holds no turns"):
        open_recorded(str(empty.folder))
    assert expert is not drunk
