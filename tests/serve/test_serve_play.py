"""`fewsteps serve --play COMMAND`: a harness's own command, repeated until the run has what it needs."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from toy_runs import rows

from analysis.cli import main
from occupancy.runs import open_run

HARNESS = """
import json, os, sys, urllib.error, urllib.request, uuid

def post(path, body, **headers):
    url, headers = sys.argv[1] + path, {"Content-Type": "application/json", **headers}
    sent = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(sent))

assert sys.argv[1] == os.environ["FEWSTEPS_URL"]
for task in range(3):
    key, messages = uuid.uuid4().hex, [{"role": "user", "content": f"Task {task}."}]
    try:
        for t in range(3):
            call = {"messages": messages, "model": "any"}
            said = post("/v1/chat/completions", call, **{"X-Session-ID": key})["choices"][0]["message"]
            messages += [said, {"role": "user", "content": f"Seen {t}."}]
    except urllib.error.HTTPError as error:
        assert error.code == 410, error.read()
        continue
    if "no reward" not in sys.argv:
        post(f"/episodes/{key}/reward", {"reward": 1.0})
"""
PLAYERS = """
from agentloop.types import Answer, Usage

async def player(ask):
    return Answer("go", Usage(1, "words"))
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "a_harness.py").write_text(HARNESS)
    (tmp_path / "play_players.py").write_text(PLAYERS)
    monkeypatch.syspath_prepend(tmp_path)
    who = ["--student=play_players:player", "--teacher=play_players:player", "--set=T_max=5"]
    return ["serve", str(tmp_path / "run"), *who, "--port=0"]


def harness(tmp_path: Path, *more: str) -> str:
    return "--play=" + shlex.join([sys.executable, str(tmp_path / "a_harness.py"), "{url}", *more])


@pytest.mark.parametrize("tasks", [[], ["--tasks=3"]])
def test_it_is_repeated_until_the_run_has_what_it_needs(
    command: list[str], tmp_path: Path, tasks: list[str]
) -> None:
    assert main([*command, *tasks, harness(tmp_path)]) == 0
    kinds = Counter(row["kind"] for row in rows(open_run(tmp_path / "run"), "episodes"))
    assert kinds == {"rollout": 3, "continuation": 3}


@pytest.mark.parametrize(
    ("played", "code", "why"),
    [
        ("--play=no-such-program", 2, "expected a program"),
        ("--play=", 2, "--play: is empty"),
        ("--play=python 'x", 2, "No closing quotation"),
        (f"--play={sys.executable} -c 'raise SystemExit(7)'", 1, "it ended with 7"),
        (f"--play={sys.executable} -c pass", 1, "it made no call of http://127.0.0.1:"),
    ],
)
def test_a_command_that_fails_is_said(
    command: list[str], capfd: pytest.CaptureFixture[str], played: str, code: int, why: str
) -> None:
    assert main([*command, played]) == code
    assert why in capfd.readouterr().err


def test_a_budget_that_is_spent_is_not_the_commands_failure(command: list[str], tmp_path: Path) -> None:
    assert main([*command, "--budget=2", "--turn-tokens=1", harness(tmp_path)]) == 3


def test_episodes_without_a_reward_are_said(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agentloop.serve.play.REWARD_S", 0.3)
    assert main([*command, harness(tmp_path, "no reward")]) == 1
    assert "3 of its episodes have no reward: see --rewards" in capfd.readouterr().err
