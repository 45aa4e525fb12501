"""docs/own_harness.md runs as it stands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("aiohttp")

from toy_runs import rows
from waiting import HANG_S, held_port, until_answered

from occupancy.runs import open_run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own_harness.md").read_text("utf-8")
HARNESS, PLAYERS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SERVE, PLAY, LEDGER, BOTH = [
    shlex.split(line) for line in re.findall(r"^    ((?:fewsteps|python) .*)", PAGE, re.M)
][:4]


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "harness.py").write_text(HARNESS)
    (tmp_path / "players.py").write_text(PLAYERS)
    with held_port() as port:
        _the_page_runs(tmp_path, str(port))


def _the_page_runs(tmp_path: Path, port: str) -> None:
    def command(words: list[str]) -> list[str]:
        start = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "analysis.cli"]
        rest = [port if word == "8333" else word for word in words[1:]]
        return [*start, *(re.sub("^python ", f"{sys.executable} ", word) for word in rest)]

    def done(words: list[str]) -> subprocess.CompletedProcess[str]:
        how = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        return subprocess.run(command(words), check=False, timeout=HANG_S, **how)

    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    server = subprocess.Popen(
        command(SERVE), cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        until_answered(f"http://127.0.0.1:{port}/status", server)
        played = done(PLAY)
        _, said = server.communicate(timeout=HANG_S)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0, said
    assert played.returncode == 0, played.stderr
    assert "this episode is over (capped)" in played.stdout
    ledger = done(LEDGER)
    assert ledger.returncode == 0, ledger.stderr
    kinds = Counter(row["kind"] for row in rows(open_run(tmp_path / "RUN"), "episodes"))
    assert kinds == {"rollout": 4, "continuation": 4}
    again = done(BOTH)
    assert again.returncode == 0, again.stderr
    kinds = Counter(row["kind"] for row in rows(open_run(tmp_path / "AGAIN"), "episodes"))
    assert kinds == {"rollout": 4, "continuation": 4}
