"""Algorithm 1 on real games: a whole run cut to K is the run collected at K."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from toy_runs import same, truncate

from agentloop.policies.by_name import open_environments, open_policy
from agentloop.run.collect import Settings, Setup, collect
from occupancy.record.recipe import preset
from occupancy.runs import Run

STUDENT = "scripted:lapse=0.2,loop=0.2"
GAME = "valid_seen/pick_and_place_simple-SprayBottle-None-GarbageCan-409/trial_T20190908_054742_818364"


async def collect_at(K: int | str, folder: Path, tasks: Path) -> Run:
    games = open_environments("alfworld", workers=1)
    settings = Settings(
        recipe=preset("op-short", K=K, T_max=12, n=2), student=STUDENT, teacher="expert", tasks=f"@{tasks}"
    )
    student, teacher = open_policy(STUDENT, games), open_policy("expert", games)
    try:
        return await collect(folder, Setup(settings, games, student, teacher))
    finally:
        await games.close()


@pytest.mark.alfworld
def test_cutting_a_whole_run_equals_collecting_at_K(tmp_path: Path, data_dir: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.write_text(GAME + "\n")
    whole = asyncio.run(collect_at("inf", tmp_path / "whole", tasks))
    direct = asyncio.run(collect_at(2, tmp_path / "direct", tasks))
    same(truncate(whole, 2, tmp_path / "cut"), direct)
    assert direct.read("traces").num_rows > 0
