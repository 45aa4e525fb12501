"""A machine that stalls: what is watched had no chance to happen meanwhile, and is not given up for it."""

from __future__ import annotations

import ast
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentloop import awake
from agentloop.environments.terminal.terminus.waiting import ACCEPTED, PROMPT, Terminal
from agentloop.render import bounded

ROOT = Path(__file__).parents[2]
PACKAGES = ("occupancy", "simulate", "agentloop", "sft", "analysis", "benchmarks")


@pytest.fixture
def stall(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Makes the machine stall for so many seconds."""
    stalled = 0.0

    def more(seconds: float) -> None:
        nonlocal stalled
        stalled += seconds

    monkeypatch.setattr(awake, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + stalled))
    return more


def test_no_legend_is_placed_by_default() -> None:
    """There matplotlib warns, once a machine took a second to look for a place."""
    unplaced = []
    for file in (file for name in PACKAGES for file in (ROOT / name).rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "legend":
                given = {keyword.arg for keyword in call.keywords}
                unplaced += [] if "loc" in given else [f"{file.name}:{call.lineno}"]
    assert not unplaced


def test_a_stall_counts_as_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(awake, "time", SimpleNamespace(monotonic=lambda: now))
    clock = awake.awake_clock(0.5)
    for passed, told in ((0.0, 0.0), (0.25, 0.25), (60.0, 0.75), (0.25, 1.0)):
        now += passed
        assert clock() == told


def test_a_template_is_not_stopped_for_a_stall(stall: Callable[[float], None]) -> None:
    def work() -> str:
        for _ in range(3):
            time.sleep(2 * bounded.POLL_S)
            stall(60)
        return "written"

    assert bounded.bounded(work, seconds=20) == "written"


@dataclass(frozen=True, slots=True)
class Slow(Terminal):
    """A terminal whose machine stalls at every look, until its shell reads the line that was typed."""

    stall: Callable[[float], None]
    looks: list[str] = field(default_factory=lambda: ["prompt"] * 8 + ["busy"] * 2)

    def _look(self) -> str:
        self.stall(5)
        return self.looks.pop(0) if self.looks else "prompt"

    def tail(self, most: int = 0) -> tuple[int, bytes]:
        log = PROMPT if self.looks else PROMPT + ACCEPTED + b"out\n" + PROMPT
        return len(log), log


def test_a_line_that_was_not_read_yet_is_waited_for(stall: Callable[[float], None]) -> None:
    terminal = Slow(1, 2, Path("/"), "log", stall)
    assert asyncio.run(terminal.settled(most_s=15, typed_at=len(PROMPT)))
    assert not terminal.looks
