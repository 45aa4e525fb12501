"""Metrics of long work to a tracker that the user names; off by default, and nothing here opens a connection.

A tracker is a module with `init(project=, name=, config=)`, `log(metrics)` and `finish()`: trackio and wandb
have them, and a file of one's own can. Only the first process of a training tracks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from occupancy.record.errors import InputError
from occupancy.record.show import say

Track = Callable[[Mapping[str, float]], None]
"""Takes the metrics of one step."""
PROJECT = "fewsteps"


def add_track(command: argparse.ArgumentParser) -> None:
    """Give a command the option --track."""
    command.add_argument(
        "--track",
        metavar="MODULE",
        help="pass metrics to a tracker such as trackio: a module with init, log and finish (default: none)",
    )


@contextmanager
def tracked(tracker: str | None, *, name: str, config: Mapping[str, Any]) -> Iterator[Track]:
    """What passes metrics of the work `name`, with its settings, on to the module `tracker`; None: nowhere.

    InputError where there is no such module, it is no tracker, or it cannot begin. One that fails later is
    named once and dropped: the work is worth more than its curve.
    """
    if tracker is None:
        yield lambda metrics: None
        return
    module = _opened(tracker, name, config)
    alive = True

    def log(metrics: Mapping[str, float]) -> None:
        nonlocal alive
        if alive:
            alive = _tried(tracker, lambda: module.log(dict(metrics)))

    try:
        yield log
    finally:
        if alive:
            _tried(tracker, module.finish)


def _opened(tracker: str, name: str, config: Mapping[str, Any]) -> Any:
    try:
        module = import_module(tracker)
    except ImportError as error:
        raise InputError(f"--track {tracker}: {error}; install it, or name another module") from error
    lacking = [part for part in ("init", "log", "finish") if not callable(getattr(module, part, None))]
    if lacking:
        raise InputError(f"--track {tracker}: the module has no {lacking[0]}(): expected init, log, finish")
    try:
        module.init(project=PROJECT, name=name, config=dict(config))
    except Exception as error:
        raise InputError(f"--track {tracker}: init failed ({error}): see to it, or leave it out") from error
    return module


def _tried(tracker: str, do: Callable[[], Any]) -> bool:
    try:
        do()
    except Exception as error:
        say(f"the tracker {tracker} failed ({error}) and is dropped; the work goes on")
        return False
    return True
