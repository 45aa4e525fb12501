"""Random schedules of concurrent calls against a provider that bills what it likes, within its limits.

The provider keeps its own bill. Whatever fails, times out, stays silent about its usage or is killed with
the process: the bill never passes the budget, and the ledger never charges less than the bill.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentloop.ledger.budget import Budget
from agentloop.ledger.metered import LocalBilling, Metered
from agentloop.ledger.store import Ledger
from agentloop.run.settings import SpendingLimits
from agentloop.types import Answer, Ask, CallFailed, Message, PolicyFailed, Traits, Usage
from occupancy.record.errors import BudgetStopped, RunError
from occupancy.record.prices import Price, PriceTable

MOST = 100
PRICE = Price(input=3, cached_input=1, output=7)
PRICES = PriceTable("EUR", {"p": PRICE})
KINDS = ("ok", "no_usage", "timeout", "unbilled", "billed_failure", "refused", "hang")


class Attempt(NamedTuple):
    """What one attempt does: how it ends, the tokens it is billed, and how long it takes."""

    kind: str
    tokens: int
    steps: int


CALLS = st.lists(
    st.lists(
        st.builds(Attempt, st.sampled_from(KINDS), st.integers(0, MOST), st.integers(0, 6)),
        min_size=1,
        max_size=3,
    ),
    min_size=1,
    max_size=64,
)


class Provider:
    """A policy that follows a script, and bills."""

    traits = Traits(most_output=MOST)

    def __init__(self) -> None:
        self.tokens = self.money = self.calls = 0
        self.scripts: dict[str, list[Attempt]] = {}

    async def __call__(self, ask: Ask) -> Answer:
        script = self.scripts[ask.episode_id]
        attempt = script.pop(0) if script else Attempt("ok", 1, 0)
        self.calls += 1
        for _ in range(attempt.steps):
            await asyncio.sleep(0)
        usage = Usage(attempt.tokens, "provider", prompt=sum(len(m.content) for m in ask.context))
        if attempt.kind not in ("unbilled", "refused"):
            # Billed before the answer is on its way: a call that hangs or is lost is paid all the same.
            self.tokens += usage.output
            self.money += PRICE.of(usage) or 0
        if attempt.kind == "hang":
            await asyncio.Event().wait()
        if attempt.kind == "timeout":
            raise CallFailed("no answer in time", kind="timeout", retry=True, billed="perhaps")
        if attempt.kind == "billed_failure":
            raise CallFailed("filtered", kind="filtered", retry=False, billed="yes", usage=usage)
        if attempt.kind == "unbilled":
            raise CallFailed("busy", kind="rate_limit", retry=True)
        if attempt.kind == "refused":
            raise PolicyFailed("no")
        reported = attempt.kind != "no_usage"
        return Answer("x", usage if reported else Usage(1, "local", reported=False))


class Bursts(RuleBasedStateMachine):
    """Bursts of up to 64 calls at once, kills and larger budgets in between."""

    @initialize(axis=st.sampled_from(["inference", "money"]), limit=st.integers(1, 60))
    def begin(self, axis: str, limit: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.axis, self.number = axis, 0
        self.limit = limit * MOST * (10 if axis == "money" else 1)
        self.provider = Provider()

    @rule(calls=CALLS, killed_after=st.none() | st.integers(0, 40))
    def burst(self, calls: list[list[Attempt]], killed_after: int | None) -> None:
        """Make the calls; a kill leaves the ledger as it stands, with whatever was open."""
        asyncio.run(self._burst(calls, 40 if killed_after is None else killed_after))

    @rule(more=st.integers(1, 20))
    def raise_the_budget(self, more: int) -> None:
        self.limit += more * MOST

    @invariant()
    def nothing_is_overspent(self) -> None:
        billed = self.provider.money if self.axis == "money" else self.provider.tokens
        assert billed <= self.limit, f"overshoot {billed - self.limit}"
        ledger = Ledger(self.folder / "ledger.sqlite")
        assert billed <= ledger.charged(self.axis) <= self.limit
        assert ledger.account()["attempts"] >= self.provider.calls, "a call without a row"
        ledger.close()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    async def _burst(self, calls: list[list[Attempt]], patience: int) -> None:
        ledger = Ledger(self.folder / "ledger.sqlite")
        budget = Budget(self.limit, spent=ledger.charged(self.axis))
        billing = LocalBilling(ledger, "teacher", "p", budget=budget, axis=self.axis)
        spending = SpendingLimits(self.limit, self.axis, prices=PRICES, retries=1, backoff_s=0)
        policy = Metered(self.provider, billing, role="teacher", name="p", spending=spending, patience=10**9)
        tasks = []
        for script in calls:
            self.number += 1
            key = f"episode {self.number}"
            self.provider.scripts[key] = list(script)
            tasks.append(asyncio.create_task(self._call(policy, key)))
        for _ in range(patience):
            await asyncio.sleep(0.0005)
            if all(task.done() for task in tasks):
                break
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ledger.close()

    async def _call(self, policy: Any, key: str) -> None:
        env: Any = None
        ask = Ask((Message("user", "hello", "task"),), 1, 7, env, key, "c", self.number)
        try:
            await policy(ask)
        except (PolicyFailed, BudgetStopped, RunError):
            return
