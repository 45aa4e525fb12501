"""Several recipes with the same spending, and the proof that it is the same.

Each recipe gets a run folder of its own and goes on until its spending passes the budget, which it does by
less than one continuation. A recipe that runs out of tasks before has spent less and is not matched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentloop.ledger.store import Ledger
from agentloop.run.collect import collect
from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.units import Progress
from agentloop.types import Environments, Policy
from occupancy.record.errors import BudgetStopped, InputError
from occupancy.runs import Run, open_run


@dataclass(frozen=True)
class Match:
    """What one recipe spent."""

    name: str
    folder: str
    spent: int
    """On the axis: C_i, C_tr, or 10^-12 of the currency."""
    largest: int
    """The dearest continuation of the run, on the same axis."""
    C_i: int
    C_tr: int
    traces: int
    reached: bool
    """Whether the budget was reached before the tasks were used up."""


@dataclass(frozen=True)
class Proof:
    """Whether the recipes have spent the same."""

    axis: str
    budget: int
    matches: tuple[Match, ...]

    @property
    def spread(self) -> int:
        """Largest difference between two recipes."""
        spent = [match.spent for match in self.matches]
        return max(spent) - min(spent)

    @property
    def matched(self) -> bool:
        """Every recipe reached the budget and passed it by no more than its own dearest continuation."""
        return all(m.reached and 0 <= m.spent - self.budget <= m.largest for m in self.matches)

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "axis": self.axis,
            "budget": self.budget,
            "matched": self.matched,
            "spread": self.spread,
            "runs": [asdict(match) for match in self.matches],
        }


async def collect_matched(
    folder: str | Path,
    settings: Mapping[str, Settings],
    *,
    environments: Environments,
    student: Policy,
    teacher: Policy,
    spending: SpendingLimits,
    progress: Progress = lambda done, total, rows: None,
) -> Proof:
    """Collect each of the named settings into `folder`/NAME for the same budget; inference or training."""

    async def one(place: Path, wanted: Settings, limited: SpendingLimits) -> None:
        await collect(
            place,
            wanted,
            environments=environments,
            student=student,
            teacher=teacher,
            spending=limited,
            progress=progress,
        )

    return await match(folder, settings, spending, one)


async def match(
    folder: str | Path,
    settings: Mapping[str, Settings],
    spending: SpendingLimits,
    one: Callable[[Path, Settings, SpendingLimits], Awaitable[object]],
) -> Proof:
    """Let `one` collect each of the named settings into `folder`/NAME with the same spending."""
    if spending.budget is None or spending.axis == "money":
        raise InputError(
            f"several recipes with budget {spending.budget} on the axis {spending.axis}: give --budget "
            "TOKENS with "
            f"--axis inference or training"
        )
    matches = []
    limit = int(spending.budget)
    for name, wanted in settings.items():
        stopped = False
        try:
            await one(Path(folder) / name, wanted, replace(spending, matched=True))
        except BudgetStopped:
            stopped = True
        matches.append(
            _match(name, open_run(Path(folder) / name), spending.axis, limit=limit, stopped=stopped)
        )
    return Proof(spending.axis, limit, tuple(matches))


def _match(name: str, run: Run, axis: str, *, limit: int, stopped: bool) -> Match:
    C_tr = run.read("traces", columns=["C_tr"])["C_tr"].to_pylist()
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    try:
        C_i = ledger.account().output_tokens
        spent = sum(C_tr) if axis == "training" else ledger.charged("inference")
        (dearest,) = ledger.query(
            "select coalesce(max(tokens), 0) as tokens from (select sum(charged_tokens) as tokens from "
            "attempts "
            "where role = 'teacher' group by episode_id)"
        )
    finally:
        ledger.close()
    largest = max(C_tr, default=0) if axis == "training" else dearest["tokens"]
    return Match(name, str(run.folder), spent, largest, C_i, sum(C_tr), len(C_tr), stopped or spent >= limit)
