"""Runs of the toy world, and their rows as plain objects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from toy_world import Corridors, drunk, expert

from agentloop.cuts.cut import Cell, cut
from agentloop.ledger.store import Ledger
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from occupancy.record.recipe import Recipe
from occupancy.runs import Run


def run_of(
    folder: Path, recipe: Recipe, *, student: Any = drunk, teacher: Any = expert, **settings: Any
) -> Run:
    worlds, spending = settings.pop("worlds", None) or Corridors(), settings.pop("spending", None)
    given = Settings(
        recipe=recipe, **{"student": "drunk", "teacher": "expert", "tasks": "8", "seed": 3} | settings
    )
    return asyncio.run(collect(folder, Setup(given, worlds, student, teacher, spending or SpendingLimits())))


def truncate(run: Run, K: float, folder: Path) -> Run:
    """The run that collecting at K would have given: every episode, cut to K."""
    return cut(run, Cell(replace(run.recipe, K=K)), folder)


def rows(run: Run, table: str, *, without: tuple[str, ...] = ("wall_s",)) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in without} for row in run.read(table).to_pylist()]


def same(one: Run, two: Run, *, calls: bool = True) -> None:
    """Both runs have the same rows; `calls`: and their ledgers the same calls."""
    for table in ("proposals", "episodes", "turns", "traces"):
        assert rows(one, table) == rows(two, table), table
    assert not calls or attempts(one) == attempts(two)


def C_i(run: Run) -> int:
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    tokens = ledger.account()["C_i"]
    ledger.close()
    return tokens


LEFT_OUT = ("id", "opened_at", "settled_at")


def attempts(run: Run) -> list[dict[str, Any]]:
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    found = ledger.rows()
    ledger.close()
    return [{k: v for k, v in row.items() if k not in LEFT_OUT} for row in found]
