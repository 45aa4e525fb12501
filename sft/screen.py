"""A training on the screen: a bar with loss, tokens/s and time left; without a terminal a line now and then.

Everything goes to standard error, so that standard output is the result alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO


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


class Screen:
    """A `Show`; a context manager, so that the bar ends with the training.

    Args:
        stream: where to write; a terminal gets a bar.
        every_s: seconds between lines where there is no terminal.
        clock: seconds, for rates and time left.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        every_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._every_s, self._clock = every_s, clock
        self._first: tuple[float, int] | None = None
        self._ids, self._shown_at = 0, float("-inf")
        self._bar: Any = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, step: Step) -> None:
        """Show a step; the rate leaves out the first one, which compiles."""
        now = self._clock()
        if self._first is None:
            self._first = now, step.step
        else:
            self._ids += step.ids
        passed, done = now - self._first[0], step.step - self._first[1]
        speed = f"{self._ids / passed:,.0f} tokens/s" if passed > 0 and done else "- tokens/s"
        left = _time((step.steps - step.step) * passed / done) if done else "-"
        if self._stream.isatty():
            self._draw(step, f"loss {step.loss:.4f}, {speed}, {left} left")
        elif now - self._shown_at >= self._every_s or step.step == step.steps:
            self._shown_at = now
            self._stream.write(
                f"train: step {step.step} of {step.steps}, epoch {step.epoch}, loss {step.loss:.4f}, "
                f"{speed}, {left} left\n"
            )
            with suppress(OSError):
                self._stream.flush()

    def _draw(self, step: Step, numbers: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from occupancy.record.show import safe_console

        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(
                *columns, TextColumn("{task.fields[numbers]}"), console=safe_console(file=self._stream)
            )
            self._bar.start()
            self._bar.add_task("train", total=step.steps, numbers="")
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=step.step, description=f"epoch {step.epoch}", numbers=numbers)


def _time(seconds: float) -> str:
    """h:mm:ss."""
    minutes, s = divmod(round(seconds), 60)
    h, m = divmod(minutes, 60)
    return f"{h}:{m:02d}:{s:02d}"
