"""Pilots of worlds recorded as text records them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.plan.read import read_pilot
from occupancy.runs import create_run
from simulate.pilots.playing import PilotSize, Rows, as_text, pilot_rows
from simulate.worlds.families import draw_worlds, family


@pytest.fixture(scope="module")
def played() -> tuple[object, dict[str, object], Rows]:
    (world,) = draw_worlds(1, seed=4, families=[family("middle")])
    return pilot_rows(world, size=PilotSize(tasks=24, demos=10, replicates=1), seed=2)


def test_a_planner_reads_the_record_of_text(
    played: tuple[object, dict[str, object], Rows], tmp_path: Path
) -> None:
    recipe, info, rows = played
    run = create_run(tmp_path / "pilot", recipe, info)  # type: ignore[arg-type]
    run.commit(as_text(rows))
    assert len(read_pilot(run.folder).clusters) == 24


def test_only_what_goes_on_from_a_turn_shares_its_history(
    played: tuple[object, dict[str, object], Rows],
) -> None:
    *_, rows = played
    before = {(turn["episode_id"], turn["t"]): turn["context_id"] for turn in rows["turns"]}
    after: dict[str, list[tuple[str, int]]] = {}
    for turn in as_text(rows)["turns"]:
        assert turn["state_id"] is None
        after.setdefault(turn["context_id"], []).append((turn["episode_id"], turn["t"]))
    shared = [places for places in after.values() if len(places) > 1]
    assert shared
    for places in shared:
        assert len({t for _, t in places}) == 1
        assert len({before[place] for place in places}) == 1
