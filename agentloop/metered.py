"""A policy with every call in the ledger, inside its budget, and with the only retries that there are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentloop.budget import Budget
from agentloop.ledger import Charge, Ledger
from agentloop.prices import Price
from agentloop.types import (
    Answer,
    Ask,
    CallFailed,
    EnvironmentFailed,
    Message,
    Policy,
    PolicyFailed,
    Usage,
    traits_of,
)
from occupancy.errors import InputError, RunError

OVERHEAD_TOKENS = 32
"""Most tokens that a chat template writes around one message."""


class ServerLost(RunError):
    """A server answers nobody any more: the run stops without making its failures data, and can be
    resumed."""


@dataclass
class Meter:
    """How a policy's calls are counted, limited and tried again."""

    ledger: Ledger
    role: str
    name: str
    """The policy as the command line names it."""
    price: Price | None = None
    budget: Budget | None = None
    axis: str = "inference"
    """What the budget limits: output tokens (inference), or money."""
    turn_tokens: int | None = None
    """Most output tokens of a call, where the policy itself has no limit."""
    retries: int = 5
    """Further attempts after one that failed for a reason that may pass."""
    backoff_s: float = 0.5
    """Wait before the first retry; it doubles each time, up to a minute."""
    patience: int = 10
    """Calls in a row that may fail after all their retries before the server counts as lost."""
    total: int = 0
    """Charged so far on the axis: what the ledger held at the start, and every attempt since."""
    _failed_in_a_row: int = field(default=0, init=False)


def metered(policy: Policy, meter: Meter) -> Policy:
    """The policy with its calls metered, and no answer bought twice.

    InputError where a budget is set and nothing bounds what a call can cost.
    """
    most_output = traits_of(policy).most_output or meter.turn_tokens
    if meter.budget is not None and most_output is None:
        raise InputError(
            f"{meter.role} {meter.name!r} has no limit on the tokens of a turn, so a budget could be "
            "exceeded: "
            f"give --turn-tokens, or max_tokens in its name"
        )
    return _Metered(policy, meter, most_output)


class _Metered:
    def __init__(self, policy: Policy, meter: Meter, most_output: int | None) -> None:
        self._policy, self._meter, self._most_output = policy, meter, most_output
        self.traits = traits_of(policy)

    async def __call__(self, ask: Ask) -> Answer:
        bought = self._meter.ledger.stored(ask)
        if bought is not None:
            return bought
        for attempt in range(self._meter.retries + 1):
            try:
                answer = await self._attempt(ask)
            except CallFailed as failure:
                if failure.kind == "forbidden":
                    raise ServerLost(f"{self._meter.role} {self._meter.name!r}: {failure}") from failure
                if not failure.retry:
                    self._meter._failed_in_a_row = 0
                    raise
                if attempt == self._meter.retries:
                    self._give_up(failure)
                    raise
                await asyncio.sleep(self._wait(ask, attempt, failure))
            else:
                self._meter._failed_in_a_row = 0
                return answer
        raise AssertionError("the loop returns or raises")

    async def _attempt(self, ask: Ask) -> Answer:
        meter = self._meter
        most = self._most(ask)
        reserved = self._amount(most)
        if meter.budget is not None:
            await meter.budget.reserve(reserved, order=ask.order)
        cost = most
        attempt_id = None
        try:
            attempt_id = await meter.ledger.open(ask, role=meter.role, policy=meter.name, most=most)
            try:
                answer = await self._policy(ask)
            except (PolicyFailed, EnvironmentFailed) as failure:
                failed = _failure_charge(failure, most, meter.price)
                await meter.ledger.fail(attempt_id, failure, cost=failed)
                cost = failed
                raise
            spent = _charge(answer.usage, most, meter.price)
            await meter.ledger.settle(attempt_id, answer, cost=spent)
            cost = spent
            return answer
        except BaseException as error:
            if attempt_id is not None and not isinstance(error, PolicyFailed | EnvironmentFailed | RunError):
                meter.ledger.abandon(attempt_id)
            raise
        finally:
            meter.total += self._amount(cost)
            if meter.budget is not None:
                meter.budget.settle(reserved, self._amount(cost))

    def _most(self, ask: Ask) -> Charge:
        tokens, price = self._most_output, self._meter.price
        if tokens is None or price is None:
            return Charge(tokens)
        return Charge(
            tokens, price.most(prompt=prompt_bound(ask.context) + self.traits.more_prompt, output=tokens)
        )

    def _amount(self, charge: Charge) -> int:
        return (charge.money if self._meter.axis == "money" else charge.tokens) or 0

    def _wait(self, ask: Ask, attempt: int, failure: CallFailed) -> float:
        # Seeded jitter: calls that failed together do not come back together, and no run is a lottery.
        jitter = 0.5 + random.Random(ask.seed + attempt).random()
        wait: float = min(self._meter.backoff_s * 2.0**attempt, 60.0) * jitter
        return max(failure.wait_s or 0.0, wait)

    def _give_up(self, failure: CallFailed) -> None:
        meter = self._meter
        meter._failed_in_a_row += 1
        if failure.kind == "connection" or meter._failed_in_a_row >= meter.patience:
            raise ServerLost(
                f"{meter.role} {meter.name!r} does not answer ({failure}): bring its server back and run the "
                f"same command again; what was bought is kept"
            ) from failure


def prompt_bound(context: Sequence[Message]) -> int:
    """Most prompt tokens of a context under any byte-level tokenizer: none spans less than one byte."""
    return sum(len(m.content.encode("utf-8", "surrogatepass")) + OVERHEAD_TOKENS for m in context) + 1024


def _charge(usage: Usage, most: Charge, price: Price | None) -> Charge:
    """Cost of an answer; what the provider did not report stays charged at its most."""
    money = None if price is None else price.of(usage)
    if usage.reported:
        return Charge(usage.output, most.money if money is None else money)
    return Charge(max(most.tokens or 0, usage.output), most.money)


def _failure_charge(failure: Exception, most: Charge, price: Price | None) -> Charge:
    if isinstance(failure, CallFailed) and failure.usage is not None:
        return _charge(failure.usage, most, price)
    if isinstance(failure, CallFailed) and failure.billed != "no":
        return most
    return Charge(0, None if price is None else 0)
