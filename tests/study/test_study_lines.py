"""Requests to other processes: answers in any order, errors as they were raised, and no death unnoticed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from waiting import HANG_S, ends

from analysis.study import lines
from occupancy.record.errors import DataError

ROOT = Path(__file__).parents[2]


def with_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[lines.Peer], Awaitable[None]]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), str(Path(__file__).parent))))

    async def main() -> None:
        peer = await lines.start("lines_peer", log=tmp_path / "log")
        try:
            async with asyncio.timeout(HANG_S):
                await ask(peer)
        finally:
            await peer.end()

    asyncio.run(main())


def test_answers_come_back_in_any_order_and_errors_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(peer: lines.Peer) -> None:
        assert await asyncio.gather(*(peer.ask(add=[a, 1]) for a in (3, 2, 1))) == [4, 3, 2]
        with pytest.raises(DataError, match=r"^the table has no row$"):
            await peer.ask(**{"raise": "ours"})
        with pytest.raises(lines.WorkerDied, match=r"^ZeroDivisionError: division by$"):
            await peer.ask(**{"raise": "other"})
        assert await peer.ask(add=[0, 1]) == 1

    with_peer(tmp_path, monkeypatch, ask)
    log = (tmp_path / "log").read_text()
    assert "Traceback" in log
    assert "a line that is no JSON" in log


def test_an_answer_longer_than_any_is_a_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(peer: lines.Peer) -> None:
        with pytest.raises(lines.WorkerDied):
            await peer.ask(print=4 * lines.LINE)

    with_peer(tmp_path, monkeypatch, ask)


def test_a_death_is_noticed_though_a_fork_keeps_the_pipe_and_nothing_outlives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(peer: lines.Peer) -> None:
        with pytest.raises(lines.WorkerDied, match=r"ended with -9: see .*log"):
            await peer.ask(fork=str(tmp_path / "forked"))
        forked = int((tmp_path / "forked").read_text())
        with pytest.raises(lines.WorkerDied):
            await peer.ask(add=[1, 1])
        assert ends(forked), "a process of the group lives"

    with_peer(tmp_path, monkeypatch, ask)
