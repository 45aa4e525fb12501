"""A policy with every call in the ledger, inside its budget, and with the only retries that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agentloop.ledger.budget import Budget
from agentloop.ledger.store import CallKey, Charge, Ledger, Result
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

    async def charge(self, attempt: int, result: Result, cost: Charge) -> None:
        """Charge an attempt with its cost, write down how it ended, and free the rest of its reservation."""

    def abandon(self, attempt: int) -> None:
        """The call was cancelled: it may have been billed, and stays charged at its largest possible cost."""


class LocalBilling:
    """The ledger and the budget of this process."""

    def __init__(
        self, ledger: Ledger, role: str, name: str, *, budget: Budget | None = None, axis: str = "inference"
    ) -> None:
        self._ledger, self._role, self._name = ledger, role, name
        self._budget, self._axis = budget, axis
        self._most: dict[int, Charge] = {}
        """By attempt, while it is open."""
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
            attempt = await self._ledger.open(key, role=self._role, policy=self._name, most=most)
        except BaseException:
            self._settle(most, most)
            raise
        self._most[attempt] = most
        return attempt

    async def charge(self, attempt: int, result: Result, cost: Charge) -> None:
        """See `Billing`."""
        most = self._most.pop(attempt)
        try:
            await self._ledger.settle(attempt, result, cost=cost)
        except BaseException:
            cost = most
            raise
        finally:
            self._settle(most, cost, unsure=result.usage is None or not result.usage.reported)

    def abandon(self, attempt: int) -> None:
        """See `Billing`."""
        self._ledger.abandon(attempt)
        most = self._most.pop(attempt)
        self._settle(most, most, unsure=True)

    def _settle(self, most: Charge, cost: Charge, *, unsure: bool = False) -> None:
        amount = self._amount(cost)
        self.total += amount
        if self._budget is not None:
            self._budget.settle(self._amount(most), amount, unsure=unsure and amount > 0)

    def _amount(self, charge: Charge) -> int:
        return (charge.money if self._axis == "money" else charge.tokens) or 0


class Bounds(NamedTuple):
    """What a call of a policy can cost."""

    price: Price | None
    most_output: int | None
    """Tokens; None where nothing limits them."""
    kept: bool
    """A budget depends on them."""


def bounds_of(policy: Policy, *, role: str, name: str, spending: SpendingLimits) -> Bounds:
    """What a call can cost; InputError where the policy has no price, or nothing bounds it under a budget."""
    price = None if spending.prices is None else spending.prices.find(name)
    most_output = traits_of(policy).most_output or spending.turn_tokens
    kept = spending.by_call and (role == "teacher" or spending.axis == "money")
    if kept and most_output is None:
        raise InputError(
            f"{role} {name!r} has no limit on the tokens of a turn, so a budget could be exceeded: give "
            f"--turn-tokens, or max_tokens in its name"
        )
    return Bounds(price, most_output, kept)


class Metered:
    """A policy with its calls metered, and no answer bought twice."""

    def __init__(
        self,
        policy: Policy,
        billing: Billing,
        *,
        role: str,
        name: str,
        spending: SpendingLimits,
        patience: int = 10,
    ) -> None:
        """Meter `policy`.

        Args:
            role: student or teacher.
            name: The policy as the run remembers it.
            spending: The budget, prices and retries.
            patience: Calls in a row that may fail after all their retries before the server counts as lost.

        Raises:
            InputError: As of `bounds_of`.
        """
        self.traits = traits_of(policy)
        self._policy, self._billing, self._patience = policy, billing, patience
        self._who = f"{role} {name!r}"
        self._retries = Retries(spending.retries, spending.backoff_s)
        self._bounds = bounds_of(policy, role=role, name=name, spending=spending)
        self._money = self._bounds.kept and spending.axis == "money"
        self._failed_in_a_row = 0

    async def __call__(self, ask: Ask) -> Answer:
        """The answer, with as many attempts as the retries allow; ServerLost where no server gives one."""
        try:
            answer = await retried(
                lambda: self._attempt(ask), self._retries, seed=ask.seed, asked_wait=_asked_wait
            )
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
                failure.kind in ("connection", "unreadable") or self._failed_in_a_row >= self._patience
            ):
                raise ServerLost(
                    f"{self._who} gives no answer ({failure}): bring its server back and run the same "
                    f"command again; what was bought is kept"
                ) from failure
            raise
        self._failed_in_a_row = 0
        return answer

    async def _attempt(self, ask: Ask) -> Answer:
        billing, price, most = self._billing, self._bounds.price, self._most(ask)
        key = CallKey(ask.episode_id, ask.t, ask.context_id, ask.order)
        reserved = await billing.reserve(key, most)
        if isinstance(reserved, Answer):
            return reserved
        try:
            answer = await self._policy(ask)
            if not isinstance(answer, Answer):
                raise TypeError(f"it returned a {type(answer).__name__}: expected an Answer")
        except (PolicyFailed, EnvironmentFailed) as failure:
            await billing.charge(reserved, failure, _failure_charge(failure, most, price))
            raise
        except BaseException:
            billing.abandon(reserved)
            raise
        cost = _charge(answer.usage, most, price)
        await billing.charge(reserved, answer, cost)
        self._refuse_more_than_reserved(ask, answer, most, cost)
        return answer

    def _refuse_more_than_reserved(self, ask: Ask, answer: Answer, most: Charge, cost: Charge) -> None:
        if self._bounds.kept and answer.usage.output > (most.tokens or 0):
            raise RunError(
                f"{self._who} gave {answer.usage.output} tokens in a turn that may have {most.tokens}: the "
                f"budget cannot be kept; raise --turn-tokens or its max_tokens, and run again"
            )
        if self._money and (cost.money or 0) > (most.money or 0):
            raise RunError(
                f"{self._who} bills {answer.usage.prompt} prompt tokens where at most "
                f"{prompt_bound(ask.context) + self.traits.more_prompt} were sent: the budget cannot be "
                f"kept; ask the provider, and run again"
            )

    def _most(self, ask: Ask) -> Charge:
        price, tokens, _ = self._bounds
        if tokens is None or price is None:
            return Charge(tokens)
        bound = prompt_bound(ask.context) + self.traits.more_prompt
        return Charge(tokens, price.most(prompt=bound, output=tokens))


def _asked_wait(failure: Exception) -> float | None:
    return (failure.wait_s or 0.0) if isinstance(failure, CallFailed) and failure.retry else None


def prompt_bound(context: Sequence[Message]) -> int:
    """Most prompt tokens of a context under any byte-level tokenizer: none spans less than one byte."""
    return sum(len(m.content.encode("utf-8", "surrogatepass")) + OVERHEAD_TOKENS for m in context) + 1024


def _charge(usage: Usage, most: Charge, price: Price | None) -> Charge:
    """Cost of an answer; what the provider did not report stays charged at its most."""
    money = None if price is None else price.of(usage)
    if usage.reported:
        return Charge(usage.output, most.money if money is None else money)
    return Charge(max(most.tokens or 0, usage.output), most.money)


def _failure_charge(failure: PolicyFailed | EnvironmentFailed, most: Charge, price: Price | None) -> Charge:
    if failure.usage is not None:
        return _charge(failure.usage, most, price)
    return Charge(0, None if price is None else 0) if failure.billed == "no" else most
