"""One retry policy: waits grow, differ between calls, are the same for the same seed, and have a limit."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import pytest

from agentloop.retries import Retries, WaitTooLong, retried, retry_after
from occupancy.record.errors import InputError


class Broken(Exception):
    pass


def attempts(retries: Retries, *, asked: float | None = 0.0, works_at: int = 99) -> tuple[int, Any]:
    """How often a call is made that fails until attempt `works_at`, and what comes of it."""
    made = 0

    async def call() -> str:
        nonlocal made
        made += 1
        if made < works_at:
            raise Broken
        return "done"

    async def main() -> Any:
        try:
            return await retried(call, retries, seed=1, asked_wait=lambda failure: asked)
        except (Broken, WaitTooLong) as failure:
            return type(failure)

    return (found := asyncio.run(main())) and (made, found)


def test_a_call_is_made_again_until_it_works_or_the_retries_are_used() -> None:
    assert attempts(Retries(5, first_s=0), works_at=3) == (3, "done")
    assert attempts(Retries(2, first_s=0)) == (3, Broken)
    assert attempts(Retries(5, first_s=0), asked=None) == (1, Broken)
    assert attempts(Retries(5, first_s=0), asked=601.0) == (1, WaitTooLong)


def test_waits_double_up_to_a_limit_with_seeded_jitter() -> None:
    retries = Retries(first_s=1.0, most_s=8.0)
    for attempt, mean in enumerate([1, 2, 4, 8, 8, 8]):
        waits = [retries.wait(attempt, seed) for seed in range(200)]
        assert 0.5 * mean <= min(waits) < 0.6 * mean
        assert 1.4 * mean < max(waits) < 1.5 * mean
        assert waits == [retries.wait(attempt, seed) for seed in range(200)]
    assert retries.wait(10**6, 0) <= 12


@pytest.mark.parametrize("wrong", [{"most": -1}, {"first_s": -1.0}, {"longest_s": float("nan")}])
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected a"):
        Retries(**wrong)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_a_date_to_wait_for_is_the_same_everywhere(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for written in (formatdate(time.time() + 60), formatdate(time.time() + 60, usegmt=True)):
            assert 58 < (retry_after(written) or 0) <= 60, written
    finally:
        monkeypatch.undo()
        time.tzset()
    assert retry_after("soon") is None
