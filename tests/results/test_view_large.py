"""The viewer with 100,000 turns: small enough to send, and drawn piece by piece."""

from __future__ import annotations

import cProfile
import random
from pathlib import Path

import pytest
from browser import dom

from analysis.view.page import view
from occupancy.record.recipe import preset
from occupancy.record.rows import Key, episode_row, turn_row
from occupancy.runs import create_run

EPISODES, TURNS = 5_000, 20
MOST_CALLS = 50
"""Calls of Python functions a turn: the work grows with the turns, and no faster."""


@pytest.mark.slow
def test_five_thousand_episodes_are_one_page_under_ten_megabytes(tmp_path: Path) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("aeiounrstlmkd", k=draw.randint(2, 10))) for _ in range(30_000)]
    episodes, turns = [], []
    for i in range(EPISODES):
        key = Key("rollout", f"task-{i % 500}", rollout=i // 500)
        episodes.append(
            episode_row(key, policy="pi_0", environment="e", length=TURNS, R=float(draw.random() < 0.4))
        )
        for t in range(1, TURNS + 1):
            row = {
                "text": " ".join(draw.choices(words, k=6)),
                "observation": " ".join(draw.choices(words, k=14)),
                "context_id": "0",
                "counter": "words",
            }
            turns.append(turn_row(key, t, author="student", output_tokens=4, **row))
    run = create_run(tmp_path / "run", preset("op-short"), {})
    run.commit({"episodes": episodes, "turns": turns})
    profile = cProfile.Profile()
    page = profile.runcall(view, run.folder, tmp_path / "page.html")
    assert sum(entry.callcount for entry in profile.getstats()) < MOST_CALLS * EPISODES * TURNS
    assert page.stat().st_size < 10_000_000
    last = Key("rollout", "task-499", rollout=9).episode_id
    found = dom(page, e=last, t=str(TURNS))
    assert "".join(found.find("div")).count(f"{EPISODES:,} of {EPISODES:,} episodes")
    assert len(found.find("article")) == TURNS
    rows = [a for tag, a, _ in found.all if tag == "a" and "top" in (a.get("style") or "")]
    assert 5 < len(rows) < 100
