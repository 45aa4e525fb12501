"""Budgets that concurrent calls cannot exceed.

A call reserves the most that it can cost before it is made, and gives back the difference once its cost is
known. Spent and reserved together never pass the limit. When no reservation is open any more and the next
one does not fit, the budget is spent; until then a call waits, and earlier units of the run go first, so
that they are finished and not all of them cut.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Literal, Protocol, get_args

from occupancy.record.errors import BudgetStopped

Axis = Literal["inference", "money", "training"]
AXES: tuple[Axis, ...] = get_args(Axis)
TOKENS: Callable[[int], str] = "{:,} tokens".format
"""An amount for a person, on an axis of tokens."""


class Budget:
    """A limit on one axis; amounts are whole numbers (tokens, or 10^-12 of a currency)."""

    def __init__(
        self,
        limit: int,
        *,
        spent: int = 0,
        show: Callable[[int], str] = TOKENS,
        unsure: tuple[int, int] = (0, 0),
    ) -> None:
        self.limit, self.spent, self._show = limit, spent, show
        """`spent` includes what is reserved."""
        self.stopped = False
        self.unsure = unsure
        """(calls, amount) that are charged at their most, since what they cost is not known."""
        self._open = 0
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []
        self._number = count()

    async def reserve(self, amount: int, *, order: int = 0) -> None:
        """Take `amount`, or wait until it is free; BudgetStopped when it never will be."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._number), amount, future))
        self._serve()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.settle(amount, 0)
            raise

    def settle(self, reserved: int, cost: int, *, unsure: bool = False) -> None:
        """Replace a reservation by what the call has cost; `unsure`: that is not known."""
        if unsure:
            calls, amount = self.unsure
            self.unsure = (calls + 1, amount + cost)
        self._open -= 1
        self.spent += cost - reserved
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            _, _, amount, future = self._waiting[0]
            if not future.cancelled() and not self.stopped and self.spent + amount <= self.limit:
                self.spent += amount
                self._open += 1
                future.set_result(None)
            elif not future.cancelled():
                if self._open and not self.stopped:
                    return
                self.stopped = True
                future.set_exception(self._stop(amount))
            heapq.heappop(self._waiting)

    def _stop(self, amount: int) -> BudgetStopped:
        calls, unsure = self.unsure
        of_these = (
            f" ({self._show(unsure)} of it for {calls:,} calls that failed or named no usage: what they cost "
            f"is not known, so each is charged its most)"
            if calls
            else ""
        )
        return BudgetStopped(
            f"the budget does not hold the next call: {self._show(self.spent)} of {self._show(self.limit)} "
            f"are spent{of_these}, and it may cost {self._show(amount)}; the run is valid as it is; resume "
            f"with a larger --budget, or a lower max_tokens"
        )


class ContinuationBudget:
    """A limit that is passed by less than one continuation: for C_tr, which is known only after the filter,
    and for recipes that are to spend the same.

    Near the limit continuations go one after another, so that the last to start is the one that passes it.
    """

    def __init__(self, limit: int, *, spent: int = 0, counted: Callable[[], int] | None = None) -> None:
        self.limit, self._added, self._counted = limit, spent, counted
        """`counted` returns what is spent where it is counted elsewhere; else `leave` adds it up."""
        self._costs: dict[int, int] = {}
        """By unit: one that is done again, since its machine died, is counted once."""
        self._running, self._largest = 0, limit
        self._changed = asyncio.Condition()

    @property
    def spent(self) -> int:
        """What has been spent so far."""
        return self._added if self._counted is None else self._counted()

    async def enter(self, unit: int) -> None:
        """Wait until a unit's continuation may start; BudgetStopped once the limit is reached."""
        async with self._changed:
            await self._changed.wait_for(self._may_go)
            if self.spent >= self.limit and unit not in self._costs:
                raise BudgetStopped(
                    f"the budget is spent: {self.spent:,} of {self.limit:,}; the run is valid as it is; "
                    f"resume with a larger --budget"
                )
            self._running += 1

    async def leave(self, unit: int, cost: int | None) -> None:
        """End a continuation with its cost; None where it was given up."""
        async with self._changed:
            self._running -= 1
            if cost is not None:
                self._added += cost - self._costs.get(unit, 0)
                self._costs[unit] = cost
                # Twice the largest seen: the next one may be larger than any before.
                seen = self._largest if self._largest < self.limit else 0
                self._largest = min(max(seen, 2 * cost, 1), self.limit)
            self._changed.notify_all()

    def _may_go(self) -> bool:
        room = self.limit - self.spent - (self._running + 1) * self._largest
        return self._running == 0 or room >= 0


class Continuations(Protocol):
    """A `ContinuationBudget`, here or in the process that holds it."""

    async def enter(self, unit: int) -> None:
        """See `ContinuationBudget`."""

    async def leave(self, unit: int, cost: int | None) -> None:
        """See `ContinuationBudget`."""
