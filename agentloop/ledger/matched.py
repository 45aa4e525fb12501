"""Several recipes that each spend the same budget, and the proof that they did.

Each recipe has a run folder and the whole budget of its own. It is collected until its spending passes the
budget, which it does by less than one continuation. A recipe that runs out of tasks has spent less and is
reported as not matched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentloop.ledger.store import Ledger
from agentloop.run.settings import Settings, SpendingLimits
from occupancy.record.errors import BudgetStopped, InputError
from occupancy.runs import Run, open_run


@dataclass(frozen=True)
class Match:
    """What one recipe spent."""

    name: str
    folder: str
    spent: int
    """On the axis: C_i or C_tr."""
    largest: int
    """Tokens of the run's most expensive continuation, on the same axis, the question for t' included."""
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
        """Every recipe reached the budget and passed it by no more than its own largest continuation."""
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


CollectOne = Callable[[Path, Settings, SpendingLimits], Awaitable[object]]


async def collect_matched(
    folder: str | Path, settings: Mapping[str, Settings], spending: SpendingLimits, collect_one: CollectOne
) -> Proof:
    """Let `collect_one` collect each of the named settings into `folder`/NAME, each with the same budget.

    Raises:
        InputError: No budget, or one of money, which the ledger cannot compare by continuations.
    """
    if spending.budget is None or spending.axis == "money":
        raise InputError(
            f"several recipes with budget {spending.budget} on axis {spending.axis}: give --budget TOKENS, "
            f"the same for each of them, with --axis inference or training"
        )
    matches = []
    limit = int(spending.budget)
    for name, wanted in settings.items():
        stopped = False
        try:
            await collect_one(Path(folder) / name, wanted, replace(spending, matched=True))
        except BudgetStopped:
            stopped = True
        matches.append(
            _match(name, open_run(Path(folder) / name), spending.axis, limit=limit, stopped=stopped)
        )
    return Proof(spending.axis, limit, tuple(matches))


def _match(name: str, run: Run, axis: str, *, limit: int, stopped: bool) -> Match:
    C_tr = run.column("traces", "C_tr")
    with closing(Ledger(run.folder / "ledger.sqlite", read_only=True)) as ledger:
        C_i = ledger.account()["C_i"]
        spent = sum(C_tr) if axis == "training" else ledger.charged("inference")
        costs = Counter[tuple[str, ...]]()
        for row in ledger.query("select episode_id, charged_tokens from attempts where role = 'teacher'"):
            costs[_proposal(row["episode_id"])] += row["charged_tokens"] or 0
    largest = max(C_tr if axis == "training" else costs.values(), default=0)
    return Match(name, str(run.folder), spent, largest, C_i, sum(C_tr), len(C_tr), stopped or spent >= limit)


def _proposal(episode_id: str) -> tuple[str, ...]:
    """What is paid for at once: a demonstration, or a continuation with the question for its switch turn."""
    task, _, rest = episode_id.rpartition("#")
    _, rollout, _, continuation, _ = rest.split("-")
    return (task, continuation) if rollout == "x" else (task, "", rollout)
