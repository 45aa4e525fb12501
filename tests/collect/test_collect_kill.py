"""A run that is killed and started again holds the same as one that was left alone."""

from __future__ import annotations

from pathlib import Path

from killed_run import collect_into, collect_under_fire
from toy_runs import same

from agentloop.run.summary import summarise
from occupancy.runs import open_run


def test_kill_9_loses_nothing_and_buys_nothing_twice(tmp_path: Path) -> None:
    collect_into(tmp_path / "whole")
    hits = collect_under_fire(tmp_path / "killed", kills=4, seed=1)
    assert hits == 4, "the run ended before it was killed"
    whole, killed = open_run(tmp_path / "whole"), open_run(tmp_path / "killed")
    same(whole, killed, calls=False)
    ids = killed.read("episodes")["episode_id"].to_pylist()
    assert len(ids) == len(set(ids))
    a, b = summarise(whole), summarise(killed)
    for name in ("C_i", "C_tr", "traces", "proposals", "episodes"):
        assert a[name] == b[name], name
    assert b["attempts"] == a["attempts"] + b["lost_attempts"]
