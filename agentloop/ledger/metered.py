"""A policy with every call in the ledger, inside its budget, and with the only retries that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentloop.ledger.budget import Budget
from agentloop.ledger.store import CallKey, Charge, Ledger, key_of
from agentloop.retries import Retries, WaitTooLong, retried
from agentloop.run.settings import SpendingLimits
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
from occupancy.record.errors import InputError, RunError
from occupancy.record.prices import Price

OVERHEAD_TOKENS = 32
"""Most tokens that a chat template writes around one message."""


class ServerLost(RunError):
    """A server does not answer any more: the run stops, its failures are no data, and it can be resumed."""


class Billing(Protocol):
    """Where calls are written down and charged: here, or in the process that holds the ledger."""

    async def reserve(self, key: CallKey, most: Charge) -> Answer | int:
        """The answer that was bought before, or the id of an attempt that may now be made.

        Waits while the budget is short; BudgetStopped once it is spent.
        """

    async def charge(
        self, attempt: int, result: Answer | PolicyFailed | EnvironmentFailed, most: Charge, cost: Charge
    ) -> None:
        """Charge an attempt with its cost, write down how it ended, and free the rest of its reservation."""

    def abandon(self, attempt: int, most: Charge) -> None:
        """The call was cancelled: it may have been billed, and stays charged at its largest possible cost."""


class LocalBilling:
    """The ledger and the budget of this process."""

    def __init__(
        self, ledger: Ledger, role: str, name: str, *, budget: Budget | None = None, axis: str = "inference"
    ) -> None:
        self._ledger, self._role, self._name = ledger, role, name
        self._budget, self._axis = budget, axis
        self.total = 0
        """Charged on the axis by every attempt that has ended here."""

    async def reserve(self, key: CallKey, most: Charge) -> Answer | int:
        """See `Billing`."""
        bought = self._ledger.stored(key)
        if bought is not None:
            return bought
        if self._budget is not None:
            await self._budget.reserve(self._amount(most), order=key.order)
        try:
            return await self._ledger.open(key, role=self._role, policy=self._name, most=most)
        except BaseException:
            self._settle(most, most)
            raise

    async def charge(
        self, attempt: int, result: Answer | PolicyFailed | EnvironmentFailed, most: Charge, cost: Charge
    ) -> None:
        """See `Billing`."""
        try:
            if isinstance(result, Answer):
                await self._ledger.settle(attempt, result, cost=cost)
            else:
                await self._ledger.fail(attempt, result, cost=cost)
        except BaseException:
            cost = most
            raise
        finally:
            usage = result.usage if isinstance(result, Answer | CallFailed) else None
            self._settle(most, cost, unsure=usage is None or not usage.reported)

    def abandon(self, attempt: int, most: Charge) -> None:
        """See `Billing`."""
        self._ledger.abandon(attempt)
        self._settle(most, most, unsure=True)

    def _settle(self, most: Charge, cost: Charge, *, unsure: bool = False) -> None:
        amount = self._amount(cost)
        self.total += amount
        if self._budget is not None:
            self._budget.settle(self._amount(most), amount, unsure=unsure and amount > 0)

    def _amount(self, charge: Charge) -> int:
        return (charge.money if self._axis == "money" else charge.tokens) or 0


@dataclass(frozen=True)
class Meter:
    """How a policy's calls are counted and tried again."""

    billing: Billing
    role: str
    name: str
    """The policy as the run remembers it."""
    spending: SpendingLimits = field(default_factory=SpendingLimits)
    patience: int = 10
    """Calls in a row that may fail after all their retries before the server counts as lost."""

    @property
    def money(self) -> bool:
        """Whether the money of every call is limited."""
        return self.spending.by_call and self.spending.axis == "money"

    @property
    def bounded(self) -> bool:
        """Whether every call needs a bound on its cost."""
        return self.money or (self.spending.by_call and self.role == "teacher")


def metered(policy: Policy, meter: Meter) -> Policy:
    """The policy with its calls metered, and no answer bought twice.

    InputError where a budget is set and nothing bounds what a call can cost.
    """
    most_output = traits_of(policy).most_output or meter.spending.turn_tokens
    if meter.bounded:
        refuse_unbounded(meter.role, meter.name, most_output)
    return _Metered(policy, meter, most_output)


def refuse_unbounded(role: str, name: str, most_output: int | None) -> None:
    """InputError where nothing limits the tokens of a call that a budget has to bound."""
    if most_output is None:
        raise InputError(
            f"{role} {name!r} has no limit on the tokens of a turn, so a budget could be exceeded: give "
            f"--turn-tokens, or max_tokens in its name"
        )


class _Metered:
    def __init__(self, policy: Policy, meter: Meter, most_output: int | None) -> None:
        self._policy, self._meter, self._most_output = policy, meter, most_output
        self.traits = traits_of(policy)
        prices = meter.spending.prices
        self._price = None if prices is None else prices.find(meter.name)
        self._who = f"{meter.role} {meter.name!r}"
        self._failed_in_a_row = 0

    async def __call__(self, ask: Ask) -> Answer:
        retries = Retries(self._meter.spending.retries, self._meter.spending.backoff_s)
        try:
            answer = await retried(lambda: self._attempt(ask), retries, seed=ask.seed, asked_wait=_asked_wait)
        except WaitTooLong as too_long:
            raise ServerLost(
                f"{self._who} {too_long} ({too_long.__cause__}): run the same command again then; what was "
                f"bought is kept"
            ) from too_long
        except CallFailed as failure:
            if failure.kind == "forbidden":
                raise ServerLost(f"{self._who}: {failure}") from failure
            self._failed_in_a_row = self._failed_in_a_row + 1 if failure.retry else 0
            if failure.retry and (
                failure.kind in ("connection", "unreadable") or self._failed_in_a_row >= self._meter.patience
            ):
                raise ServerLost(
                    f"{self._who} gives no answer ({failure}): bring its server back and run the same "
                    f"command again; what was bought is kept"
                ) from failure
            raise
        self._failed_in_a_row = 0
        return answer

    async def _attempt(self, ask: Ask) -> Answer:
        billing, price, most = self._meter.billing, self._price, self._most(ask)
        reserved = await billing.reserve(key_of(ask), most)
        if isinstance(reserved, Answer):
            return reserved
        try:
            answer = await self._policy(ask)
            if not isinstance(answer, Answer):
                raise TypeError(f"it returned a {type(answer).__name__}: expected an Answer")
        except (PolicyFailed, EnvironmentFailed) as failure:
            await billing.charge(reserved, failure, most, _failure_charge(failure, most, price))
            raise
        except BaseException:
            billing.abandon(reserved, most)
            raise
        cost = _charge(answer.usage, most, price)
        await billing.charge(reserved, answer, most, cost)
        self._refuse_more_than_reserved(ask, answer, most, cost)
        return answer

    def _refuse_more_than_reserved(self, ask: Ask, answer: Answer, most: Charge, cost: Charge) -> None:
        if self._meter.bounded and most.tokens is not None and answer.usage.output > most.tokens:
            raise RunError(
                f"{self._who} gave {answer.usage.output} tokens in a turn that may have {most.tokens}: the "
                f"budget cannot be kept; raise --turn-tokens or its max_tokens, and run again"
            )
        if self._meter.money and (cost.money or 0) > (most.money or 0):
            raise RunError(
                f"{self._who} bills {answer.usage.prompt} prompt tokens where at most "
                f"{prompt_bound(ask.context) + self.traits.more_prompt} were sent: the budget cannot be "
                f"kept; ask the provider, and run again"
            )

    def _most(self, ask: Ask) -> Charge:
        tokens, price = self._most_output, self._price
        if tokens is None or price is None:
            return Charge(tokens)
        bound = prompt_bound(ask.context) + self.traits.more_prompt
        return Charge(tokens, price.most(prompt=bound, output=tokens))


def _asked_wait(failure: Exception) -> float | None:
    again = isinstance(failure, CallFailed) and failure.retry and failure.kind != "forbidden"
    return (failure.wait_s or 0.0) if again and isinstance(failure, CallFailed) else None


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
