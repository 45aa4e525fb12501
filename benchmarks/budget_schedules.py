"""Overshoot of a budget over random schedules: python -m benchmarks budget_schedules [--schedules 1000]

Each schedule is a run of tests/budget_machine.py: bursts of up to 64 concurrent calls with failures,
timeouts, silent providers, kills and resumes. The first overshoot ends the measurement with its example.
"""

from __future__ import annotations

import time

from budget_machine import Bursts
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test


def main(schedules: int = 1000) -> None:
    began, bursts = time.process_time(), []
    burst = Bursts._burst

    async def counted(self, calls, patience):  # type: ignore[no-untyped-def]
        bursts.append(len(calls))
        await burst(self, calls, patience)

    Bursts._burst = counted  # type: ignore[method-assign]
    run_state_machine_as_test(
        Bursts,
        settings=settings(
            max_examples=schedules,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
    cpu = time.process_time() - began
    found = f"{len(bursts)} bursts, {sum(bursts)} calls, overshoot 0"
    print(f"{schedules} schedules, {found}, {cpu:.0f} CPU s")
