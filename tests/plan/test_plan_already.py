"""Runs that are paid for before a budget: each counts once, and only where a student can be trained on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pilots
import pytest

from analysis.cli import main
from analysis.curves.acquisition import Option
from analysis.curves.arms import Arm
from analysis.plan.planner import plan
from analysis.plan.read import teacher_tokens
from analysis.plan.trainer import Bench
from occupancy.record.errors import InputError
from occupancy.runs import Run, create_run


def test_a_copy_of_a_run_does_not_count_twice(run: Run, tmp_path: Path) -> None:
    first = pilots.write_pilot(tmp_path / "D_BC", pilots.A, tasks=24, seed=9)
    own, other = (shutil.copytree(one.folder, tmp_path / f"{one.folder.name}-2") for one in (run, first))
    rewards = {f"new-{q}": [1.0, float(q % 2)] for q in range(40)}
    bench = Bench(run, lambda folders, seed: rewards, "mine:train")
    bench.train(Option(Arm("op-short", 2.0, 1.0), 3000.0, 1))
    moved = tmp_path / "moved"
    for already in ([own], [run.folder, own], [first.folder, other]):
        with pytest.raises(InputError, match="would count twice; name each run once"):
            plan(run.folder, budget=1e5, already=already)
    paid = sum(teacher_tokens(first.folder))
    shutil.move(first.folder, moved)
    (tmp_path / "link").symlink_to(moved)
    found = plan(run.folder, budget=1e5, already=[moved, moved, tmp_path / "link", run.folder])
    assert found.pilot["beside_tokens"] == paid


def test_a_part_of_a_run_does_not_count_twice(run: Run, tmp_path: Path) -> None:
    """A copy that grew, and one that was left behind, are no copies of the whole any more."""
    first = pilots.write_pilot(tmp_path / "D_BC", pilots.A, tasks=24, seed=9)
    part = create_run(tmp_path / "part", first.recipe, first.info)
    episodes, turns = first.read("episodes").to_pylist(), first.read("turns").to_pylist()
    own = [row["episode_id"] for row in episodes[:9]]
    mine = [row for row in turns if row["episode_id"] in own]
    part.commit({"episodes": episodes[:9], "turns": mine})
    grown = [{**row, "episode_id": "new"} for row in mine if row["episode_id"] == own[0]]
    part.commit({"episodes": [{**episodes[0], "episode_id": "new"}], "turns": grown})
    for already in ([part.folder, first.folder], [first.folder, part.folder]):
        with pytest.raises(InputError, match=r"9 of its \d+ episodes are in .* too, and would count twice"):
            plan(run.folder, budget=1e5, already=already)


def test_what_no_student_of_this_pilot_is_trained_on_is_not_paid_for(run: Run, tmp_path: Path) -> None:
    first = pilots.write_pilot(tmp_path / "D_BC", pilots.A, tasks=24, seed=9).folder
    told = json.loads((first / "run.json").read_text())
    (first / "run.json").write_text(json.dumps(told | {"environment": "another 1"}))
    with pytest.raises(InputError, match="a run of 'another'"):
        plan(run.folder, budget=1e5, already=[first])
    (first / "run.json").write_text(json.dumps(told | {"environment": "imported chat"}))
    assert plan(run.folder, budget=1e5, already=[first]).pilot["beside_tokens"]
    empty = create_run(tmp_path / "none", run.recipe, told).folder
    with pytest.raises(InputError, match="no teacher turn"):
        plan(run.folder, budget=1e5, already=[empty])
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert main(["plan", str(run.folder), "--budget", "1e5", "--already", str(tmp_path / "loop")]) == 2
    with pytest.raises(InputError, match="not an empty text"):
        plan(run.folder, budget=1e5, already=[""])
