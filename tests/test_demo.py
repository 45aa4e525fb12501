"""The demo's pilot is what the games give, and the demo makes what it says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from analysis.cli import main
from analysis.demo import BUDGETS, PILOT
from occupancy.runs import Run, open_run


def cheapest_task(run: Run) -> str:
    """The task with fewest recorded turns among those with a demonstration."""
    episodes = run.read("episodes", columns=["task_id", "kind", "length"]).to_pylist()
    turns: Counter[str] = Counter()
    for episode in episodes:
        turns[episode["task_id"]] += episode["length"]
    return min({e["task_id"] for e in episodes if e["kind"] == "demo"}, key=turns.__getitem__)


@pytest.mark.alfworld
def test_a_slice_of_the_recording_repeats_from_the_games(tmp_path: Path, data_dir: Path) -> None:
    from agentloop.alfworld.pool import open_alfworld
    from agentloop.collect import Settings, collect
    from agentloop.policies import open_policy

    recorded = open_run(PILOT)
    task, info = cheapest_task(recorded), recorded.info
    (tmp_path / "tasks").write_text(task + "\n")

    async def again() -> Run:
        games = open_alfworld(workers=1)
        assert games.version == info["environment"]
        settings = Settings(
            recipe=recorded.recipe,
            student=info["student"],
            teacher=info["teacher"],
            tasks=f"@{tmp_path / 'tasks'}",
            seed=info["seed"],
            pilot=True,
            handback=tuple(info["handback"]),
            replicates=info["replicates"],
            demo_tasks=1,
        )
        student, teacher = (open_policy(info[who], games) for who in ("student", "teacher"))
        try:
            return await collect(
                tmp_path / "run", settings, environments=games, student=student, teacher=teacher
            )
        finally:
            await games.close()

    repeated = asyncio.run(again())
    for table in ("proposals", "episodes", "turns", "traces"):
        was = [row for row in recorded.read(table).to_pylist() if row["task_id"] == task]
        now = repeated.read(table).to_pylist()
        for row in (*was, *now):
            row.pop("wall_s", None)
        assert was, table
        assert now == was, table


def test_demo_prints_plans_and_writes_figure_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [plan["budget"] for plan in printed["plans"]] == list(BUDGETS)
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert page.count("<h2>With") == len(BUDGETS)
    assert "http" not in page, "the page loads nothing from elsewhere"
    assert page.count("<th>cost m(K)</th>") == len(BUDGETS)
    for plan in printed["plans"]:
        assert f"Value: {plan['unit']}." in page, "the unit stands beside the table"
        assert f"<td>{plan['costs']['inference'][plan['recommended']['K'] - 1]:,.3g}</td>" in page


def test_demo_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "G(K)" in capsys.readouterr().out
