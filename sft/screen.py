"""A step of a training, and what a screen says of it: epoch, loss and speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One finished optimizer step."""

    step: int
    """From 1."""
    steps: int
    """All steps of the training."""
    epoch: int
    """From 1."""
    loss: float
    """Nats per target."""
    ids: int
    """Ids of the step's rows, over all GPUs."""


Show = Callable[[Step], None]


def quiet(step: Step) -> None:
    """Show nothing."""


def notes(clock: Callable[[], float] = time.monotonic) -> Callable[[Step], str]:
    """What to say of each step; the speed leaves out the first one, which compiles. `clock`: seconds."""
    began: float | None = None
    ids = 0

    def note(step: Step) -> str:
        nonlocal began, ids
        if began is None:
            began = clock()
            return f"epoch {step.epoch}, loss {step.loss:.4f}"
        ids += step.ids
        passed = max(clock() - began, 1e-9)
        return f"epoch {step.epoch}, loss {step.loss:.4f}, {ids / passed:,.0f} tokens/s"

    return note
