"""Episodes of every kind on the screen, without a tokenizer; and the figure of `occupancy`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentloop.render.episodes import episodes_of
from analysis.cli import main
from occupancy.runs import open_run

PILOT = str(Path(__file__).parents[1] / "scripted_pilot")


def test_accepted_traces_come_first_with_their_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces", "show", PILOT, "--limit", "0", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["episodes"]
    traces = open_run(PILOT).read("traces").to_pylist()
    assert len(shown) == len(traces)
    trained = {
        t["episode_id"]: [m["content"] for m in json.loads(t["messages"]) if m["train"]] for t in traces
    }
    for episode in shown:
        targets = [m["text"] for m in episode["messages"] if m["target"]]
        assert targets == trained[episode["episode_id"]]


@pytest.mark.parametrize("kind", ["rollout", "demo", "handback", "continuation"])
def test_episodes_of_a_kind_are_whole(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_run(PILOT)
    lengths = {e["episode_id"]: e["length"] for e in run.read("episodes").to_pylist()}
    for episode in episodes_of(run, kind=kind, limit=30):
        assert episode["kind"] == kind
        turns = [m["t"] for m in episode["messages"] if m["t"] is not None]
        assert turns == list(range(1, lengths[episode["episode_id"]] + 1))
        assert episode["messages"][0]["author"] == "task"
    assert main(["traces", "show", PILOT, "--kind", kind, "--limit", "1"]) == 0
    assert "*: trained on" in capsys.readouterr().out


def test_what_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--status", "environment_error"], "status 'environment_error'"),
        (["--trace", "nobody"], "episode_id 'nobody'"),
        (["--kind", "demo", "--tokenizer", "somewhere"], "give one or the other"),
    ):
        assert main(["traces", "show", PILOT, *arguments]) == 2
        assert said in capsys.readouterr().err


def test_occupancy_draws_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["occupancy", PILOT, "--top", "4", "--figure", str(tmp_path / "o.svg"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["conventions"]["pooled"]["states"]) == 4
    assert (tmp_path / "o.svg").read_bytes().startswith(b"<?xml")
    assert main(["occupancy", PILOT, "--figure", str(tmp_path / "o.gif")]) == 2
