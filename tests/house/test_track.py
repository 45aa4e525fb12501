"""Metrics go to a tracker that is named, and a tracker that fails costs nothing but its curve."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from analysis.cli import main
from occupancy.record.errors import InputError
from occupancy.record.track import tracked

TRACKER = """
import json, pathlib
FILE = pathlib.Path(__file__).with_suffix(".log")
def _write(*what):
    with FILE.open("a") as lines: lines.write(json.dumps(what) + "\\n")
def init(project, name, config): _write("init", project, name, len(config))
def log(metrics):
    _write("log", metrics)
    if BREAKS: raise OSError("no room")
def finish(): _write("finish")
"""


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, breaks in (("keeps", False), ("breaks", True)):
        (tmp_path / f"{name}_track.py").write_text(f"BREAKS = {breaks}\n{TRACKER}")
    yield lambda name: [
        json.loads(line) for line in (tmp_path / f"{name}_track.log").read_text().splitlines()
    ]
    for name in ("keeps_track", "breaks_track"):
        sys.modules.pop(name, None)


COLLECT = ["collect", "--env", "toy_world:open_corridors", "--student", "drunk", "--teacher", "expert"]


def test_a_collection_reports_what_it_committed(tracker, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    command = [*COLLECT, "--tasks", "6", "--out", "run", "--json"]
    assert main([*command, "--track", "keeps_track"]) == 0
    told = json.loads(capsys.readouterr().out)
    lines = tracker("keeps")
    assert lines[0][:3] == ["init", "fewsteps", "run"]
    assert lines[-1] == ["finish"]
    assert lines[-2][1]["teacher_tokens"] == told["C_i"]
    assert lines[-2][1]["done"] == lines[-2][1]["total"]


def test_a_tracker_that_fails_is_dropped_and_named_once(tracker, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    assert main([*COLLECT, "--tasks", "6", "--out", "run", "--track", "breaks_track"]) == 0
    assert capsys.readouterr().err.count("breaks_track failed (no room)") == 1
    assert [line[0] for line in tracker("breaks")] == ["init", "log"]


def test_what_is_no_tracker_is_refused_before_anything_is_bought(tmp_path: Path) -> None:
    for name in ("no_such_module_anywhere", "json"):
        with pytest.raises(InputError, match="--track"), tracked(name, name="x", config={}):
            raise AssertionError("not reached")
    with tracked(None, name="x", config={}) as track:
        track({"loss": 1.0})
