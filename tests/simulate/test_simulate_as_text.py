"""Pilots of worlds recorded as text records them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.plan.read import read_pilot
from occupancy.record.errors import InputError
from occupancy.runs import create_run
from simulate.pilots.as_text import CONTEXTS, as_text
from simulate.pilots.playing import PilotSize, Rows, pilot_rows
from simulate.worlds.families import draw_worlds, family


@pytest.fixture(scope="module")
def played() -> tuple[object, dict[str, object], Rows]:
    (world,) = draw_worlds(1, seed=4, families=[family("middle")])
    return pilot_rows(world, size=PilotSize(tasks=24, demos=10, replicates=1), seed=2)


@pytest.mark.parametrize("contexts", sorted(CONTEXTS))
def test_a_planner_reads_every_record(
    played: tuple[object, dict[str, object], Rows], tmp_path: Path, contexts: str
) -> None:
    recipe, info, rows = played
    run = create_run(tmp_path / "pilot", recipe, info)  # type: ignore[arg-type]
    run.commit(as_text(rows, contexts=contexts))
    assert len(read_pilot(run.folder).clusters) == 24


@pytest.mark.parametrize("contexts", ["words", "shared", "nothing"])
def test_only_what_goes_on_from_a_turn_shares_its_history(
    played: tuple[object, dict[str, object], Rows], contexts: str
) -> None:
    *_, rows = played
    before = {(turn["episode_id"], turn["t"]): turn["context_id"] for turn in rows["turns"]}
    after: dict[str, list[tuple[str, int]]] = {}
    for turn in as_text(rows, contexts=contexts)["turns"]:
        assert turn["state_id"] is None
        after.setdefault(turn["context_id"], []).append((turn["episode_id"], turn["t"]))
    shared = [places for places in after.values() if len(places) > 1]
    assert shared
    for places in shared:
        assert len({t for _, t in places}) == 1
        assert len({before[place] for place in places}) == 1


def test_words_name_a_context_and_nothing_names_none(
    played: tuple[object, dict[str, object], Rows],
) -> None:
    *_, rows = played
    counts = {
        contexts: len({turn["observation"] for turn in as_text(rows, contexts=contexts)["turns"]})
        for contexts in CONTEXTS
    }
    assert counts["ids"] == counts["words"] > counts["shared"] > counts["nothing"]


def test_what_cannot_be_is_refused(played: tuple[object, dict[str, object], Rows]) -> None:
    with pytest.raises(InputError, match="expected one of ids, words"):
        as_text(played[2], contexts="pictures")
