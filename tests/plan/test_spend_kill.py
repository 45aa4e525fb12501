"""`spend` that is killed -9 goes on: nothing is bought twice, and the budget holds, lost calls included."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import killed_spend
import pytest

from agentloop.ledger.store import Ledger
from analysis.spend.state import charged
from occupancy.runs import open_run

BOUGHT = ("first-demos", "first-contexts", "demos", "contexts")


def test_kill_9_at_any_step_buys_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(killed_spend.__file__).parent)
    left = killed_spend.prepare(tmp_path)
    out = tmp_path / "out"

    def begun(name: str) -> bool:
        return any((out / name).glob("parts/[0-9]*"))

    def written(step: str) -> bool:
        file = out / "spend.json"
        return file.exists() and step in json.loads(file.read_text())["steps"]

    def training(name: str) -> bool:
        file = tmp_path / "trained.txt"
        return file.exists() and any(name in line for line in file.read_text().splitlines())

    moments = {
        "the first training": lambda: training("cells"),
        "a purchase": lambda: begun("first-contexts"),
        "between purchase and training": lambda: written("first purchase"),
        "the last demonstrations": lambda: begun("demos"),
        "the training of pi_1": lambda: training("pi_1"),
        "the last continuations": lambda: begun("contexts"),
        "the final training": lambda: training(killed_spend.LAST),
    }
    for when, happens in moments.items():
        assert killed_spend.killed_when(tmp_path, happens), f"it ended before {when}"
    done = subprocess.run([sys.executable, killed_spend.__file__, str(tmp_path)], check=False)
    assert done.returncode == 0
    state = json.loads((out / "spend.json").read_text())
    assert list(state["steps"])[-1] == "final student"
    assert sum(charged(out / name) for name in BOUGHT) == state["spent"] <= left
    assert state["spent"] > 0.8 * left
    for name in BOUGHT:
        ids = open_run(out / name).read("episodes")["episode_id"].to_pylist()
        assert len(ids) == len(set(ids))
        with closing(Ledger(out / name / "ledger.sqlite", read_only=True)) as ledger:
            rows = ledger.query("select episode_id, t from attempts where state in ('settled', 'orphaned')")
        assert max(Counter((row["episode_id"], row["t"]) for row in rows).values()) == 1
    tasks = [set(open_run(out / name).read("episodes")["task_id"].to_pylist()) for name in BOUGHT]
    assert sum(map(len, tasks)) == len(set.union(*tasks))
