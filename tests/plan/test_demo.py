"""The demo's pilot is what the games give, and the demo makes what it says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pilots
import pytest

from analysis.cli import main
from analysis.demo import BUDGETS, PILOT
from analysis.figures import plan_figure
from analysis.page import plan_page
from analysis.plan.planner import plan
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
    from agentloop.environments.alfworld.pool import open_alfworld
    from agentloop.policies.by_name import open_policy
    from agentloop.run.collect import Settings, Setup, collect

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
            return await collect(tmp_path / "run", Setup(settings, games, student, teacher))
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
    assert [one["budget"] for one in printed["plans"]] == list(BUDGETS)
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert page.count("<h2>With") == len(BUDGETS)
    assert "http" not in page, "the page loads nothing from elsewhere"
    levels = [one["level"] for one in printed["plans"]]
    assert levels == [0, 1, 1], "too dear a pilot for the first; the others are predicted"
    assert page.count("<th>cost m(K)</th>") == levels.count(0)
    for one in printed["plans"]:
        assert f"Value: {one['unit']}." in page, "the unit stands beside the table"
    first = printed["plans"][0]
    assert f"<td>{first['costs']['inference'][first['recommended']['K'] - 1]:,.3g}</td>" in page


def test_a_predicted_plan_has_its_page_and_figure(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=40, seed=5)
    found = plan(run.folder, budget=3e5, already=[run.folder], pool=500)
    assert found.level == 1
    figure = plan_figure(found, tmp_path / "plan.png")
    info = run.info | {name: f"<script>{name}</script>" for name in ("seed", "tasks", "student", "teacher")}
    (run.folder / "run.json").write_text(json.dumps(info), "utf-8")
    page = plan_page([found], pilot=run.folder, figure=figure, file=tmp_path / "plan.html").read_text("utf-8")
    assert page.count("<tr class=") == len(found.candidates)
    assert page.count('<tr class="best">') == (0 if found.fall_back else 1)
    for c in found.candidates:
        assert f"<td>{c.pass_at_1:.3f} ({c.low:.3f} to {c.high:.3f})</td>" in page
    assert page.count("&lt;script&gt;") == 4
    assert "<script" not in page, "whatever run.json holds is escaped"
    assert "None" not in page
    assert "nan" not in page.replace(page[page.index("base64") : page.index('">', page.index("base64"))], "")


def test_demo_for_a_person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "G(K)" in capsys.readouterr().out


def test_where_nothing_is_preferred_nothing_is_shown_as_worse(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "pilot", pilots.A, tasks=40, seed=5)
    found = plan(run.folder, budget=3e5, already=[run.folder], pool=500)
    alike = replace(found, status="no_preference", not_worse=found.candidates)
    figure = plan_figure(alike, tmp_path / "plan.png")
    page = plan_page([alike], pilot=run.folder, figure=figure, file=tmp_path / "plan.html").read_text("utf-8")
    assert page.count('<tr class="best">') == 1, "the best guess"
    assert page.count('<tr class="kept">') == len(found.candidates) - 1
