"""What contexts are told apart by: ids that come again, else text; and the plans that follow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pilots
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.plan.calibrate import KAPPA, prior_of
from analysis.plan.level0 import Purchase
from analysis.plan.level1 import plan_pilot
from analysis.plan.read import read_pilot
from analysis.plan.reading import IDENTITIES, LEAST_REPEATED, TURNS, identity_of, names, repeated_share

CLOCK = "You stand at {place}. It is {clock} seconds past noon."


def rows(episodes: dict[str, list[tuple[int, str, str]]], **more: Any) -> pd.DataFrame:
    """Turns (t, context, observation) of each episode, each episode a task of its own."""
    flat = [
        {"episode_id": name, "cluster": q, "author": "student", "t": t, "context_id": context}
        | {"observation": seen, "state_id": None}
        | more
        for q, (name, turns) in enumerate(episodes.items())
        for t, context, seen in turns
    ]
    return pd.DataFrame(flat)


def test_a_context_is_what_was_read_before_the_turn() -> None:
    turns = rows({"a": [(1, "h0", "Drawer 12 is closed."), (2, "h1", "drawer 7 is CLOSED."), (3, "h2", "")]})
    assert names(turns, "observation").tolist() == ["", "drawer # is closed.", "drawer # is closed."]
    assert names(turns, "opening").tolist() == ["1 ", "2 drawer # is closed.", "3 drawer # is closed."]


def test_an_episode_that_goes_on_from_another_reads_what_that_one_read() -> None:
    turns = rows({"a": [(1, "h0", "a shelf"), (2, "h1", "a desk")], "b": [(2, "h1", "a bed"), (3, "x", "")]})
    assert names(turns, "observation").tolist() == ["", "a shelf", "a shelf", "a bed"]


def test_what_nobody_recorded_is_a_context_of_its_own() -> None:
    turns = rows({"a": [(3, "lost", "a desk"), (4, "h", "")]})
    assert names(turns, "observation").tolist() == ["lost", "a desk"]


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), min_size=1, max_size=8))
def test_contexts_that_come_again_win_over_text(paths: list[list[str]]) -> None:
    turns = rows({str(q): [(t, c, "same") for t, c in enumerate(path, 1)] for q, path in enumerate(paths)})
    node = pd.factorize(turns["context_id"])[0]
    share = repeated_share(np.asarray(node), turns["cluster"].to_numpy(), np.zeros(len(turns), bool))
    found = identity_of(turns)
    assert found in IDENTITIES
    assert (found == "context_id") == (share >= LEAST_REPEATED or len(paths) == 1)


def test_numbers_do_not_tell_contexts_apart(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "p", pilots.A, tasks=24, unique=True, says=CLOCK)
    assert read_pilot(run.folder).steps.identity == "observation"


@pytest.mark.parametrize("says", ["", "You stand somewhere.", "It is {clock}."])
def test_observations_that_say_nothing_leave_the_turn(tmp_path: Path, says: str) -> None:
    run = pilots.write_pilot(tmp_path / "p", pilots.A, tasks=24, unique=True, says=says)
    steps = read_pilot(run.folder).steps
    assert steps.identity == "opening"
    assert len(np.unique(steps.node)) == TURNS


def test_observations_that_never_repeat_are_told_by_turn_and_opening(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "p", pilots.A, tasks=24, unique=True)
    turns = run.read("turns").to_pandas().sort_values(["episode_id", "t"], kind="stable")
    turns["cluster"] = pd.factorize(turns["task_id"])[0]
    alone = [re.sub(r"\d", lambda digit: chr(97 + int(digit[0])), str(at)) for at in range(len(turns))]
    turns["observation"] = ["Here is the thing " + word for word in alone]
    assert identity_of(turns) == "opening"


def test_text_pilots_are_planned_with_a_wide_curve_and_told_so(tmp_path: Path) -> None:
    run = pilots.write_pilot(tmp_path / "p", pilots.A, tasks=40, seed=5, unique=True, says=CLOCK)
    pilot = read_pilot(run.folder)
    found = plan_pilot(pilot, Purchase(5e5, charged=False))
    assert found.level == 1
    assert any("no context comes twice" in warning for warning in found.warnings)
    whole = read_pilot(pilots.write_pilot(tmp_path / "q", pilots.A, tasks=40, seed=5).folder)
    plain = plan_pilot(whole, Purchase(5e5, charged=False))
    for text, known in zip(found.candidates, plain.candidates, strict=True):
        assert text.low <= known.pass_at_1 <= text.high
        assert text.high - text.low > known.high - known.low


def test_the_prior_of_text_goes_by_the_labels_that_the_pilot_holds(tmp_path: Path) -> None:
    ids, text = (
        read_pilot(pilots.write_pilot(tmp_path / name, pilots.A, tasks=80, **kind).folder)
        for name, kind in (("ids", {}), ("text", {"unique": True, "says": CLOCK}))
    )
    assert prior_of(ids.steps).centre == pytest.approx(KAPPA, rel=0.01)
    assert prior_of(text.steps).centre > KAPPA
    assert prior_of(text.steps).spread > prior_of(ids.steps).spread
