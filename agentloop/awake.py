"""A clock that stands still while this process does, for limits on how long something is watched."""

from __future__ import annotations

import time
from collections.abc import Callable


def awake_clock(most_s: float = 0.1) -> Callable[[], float]:
    """A clock of seconds in which its reader was awake.

    On a machine that stalls for a minute nothing has been watched for that minute: what is waited for had no
    chance to happen. So what passed between two looks counts for `most_s` at most.

    Args:
        most_s: somewhat more than what lies between two looks otherwise.

    Returns:
        What gives the seconds, from 0 on.
    """
    seen, awake = time.monotonic(), 0.0

    def seconds() -> float:
        nonlocal seen, awake
        before, seen = seen, time.monotonic()
        awake += min(seen - before, most_s)
        return awake

    return seconds
