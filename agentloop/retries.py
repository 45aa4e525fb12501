"""The retry policy of every server that is called: growing waits with seeded jitter, and Retry-After."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import TypeVar

from occupancy.record.specs import NotNegative, Size, check

T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """How often a failed call is made again, and when."""

    most: Size = 5
    """Further attempts after the first."""
    first_s: NotNegative = 0.5
    """Mean wait before the first of them, in seconds; it doubles each time."""
    most_s: NotNegative = 60.0
    """Limit of that doubling, in seconds."""
    longest_s: NotNegative = 600.0
    """Longest wait that a server may ask for, in seconds."""

    def __post_init__(self) -> None:
        check(self)

    def wait(self, attempt: int, seed: int) -> float:
        """Seconds after failed attempt 0, 1, …: calls that failed together do not come back together."""
        mean = min(self.first_s * 2.0 ** min(attempt, 60), self.most_s)
        return mean * (0.5 + Random(seed + attempt).random())


class WaitTooLong(Exception):
    """The server asks to wait longer than allowed; its cause is the failure that says so."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"asks to wait {wait_s:,.0f} s")


async def retried(
    call: Callable[[], Awaitable[T]],
    retries: Retries,
    *,
    seed: int,
    asked_wait: Callable[[Exception], float | None],
) -> T:
    """The result of `call`, made again after failures that may pass.

    Args:
        seed: of the jitter: the same seed waits equally long.
        asked_wait: failure -> seconds the server asks to wait, 0 for none; None where no retry can help.

    Raises:
        WaitTooLong: from the failure that asks for more than `retries.longest_s`.
        Exception: the last failure, as it was.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except Exception as failure:
            asked = asked_wait(failure)
            if asked is None or attempt == retries.most:
                raise
            wait = max(asked, retries.wait(attempt, seed))
            if wait > retries.longest_s:
                raise WaitTooLong(wait) from failure
        attempt += 1
        await asyncio.sleep(wait)


def retry_after(header: str) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date; None where it holds neither."""
    try:
        if header.replace(".", "", 1).isdigit():
            return float(header)
        date = parsedate_to_datetime(header)
        # A date without a zone ("-0000", as Python writes one) is UTC, and not this machine's time.
        return max(date.replace(tzinfo=date.tzinfo or UTC).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None
