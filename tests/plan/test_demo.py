"""The demo makes what it says; a slice of the pilot with a scripted student repeats from the games."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from analysis.cli import main
from analysis.demo import BUDGET
from occupancy.runs import Run, open_run

SCRIPTED = Path(__file__).parents[1] / "scripted_pilot"


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

    recorded = open_run(SCRIPTED)
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


def test_demo_writes_a_figure_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["plan"]["budget"] == BUDGET
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert "://" not in page, "the page loads nothing from elsewhere"
    assert "None" not in page
    image = page[page.index("base64") : page.index('">', page.index("base64"))]
    assert "nan" not in page.replace(image, "")


def test_demo_for_a_person_ends_in_a_decision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["demo", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    question, answer, *_ = shown.split("\n\n")
    assert question.endswith("What should the next 10,000 output tokens of its teacher buy?")
    assert answer.startswith("No preference; the best guess is "), "the answer is first"
    assert "Evidence: 16 small trainings on cuts of the pilot" in shown
    assert "What the sweep measured" in shown
    assert "0% of 34 bands" in " ".join(shown.split()), "what failed is said"
    assert "\nRegistered decision: buy op-short K=2 r=1 rather than more demonstrations." in shown
    assert max(map(len, shown.splitlines())) <= 80
