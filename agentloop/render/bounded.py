"""Code that a file brings (a chat template), run within limits of time and memory.

It runs in the thread of its caller: one thread beside looks four times a second, and stops what takes too
long or makes the process grow by gigabytes. A call costs a microsecond more than without limits.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from agentloop.awake import awake_clock

T = TypeVar("T")
POLL_S = 0.25
MOST_GB = 2.0
"""Growth of the process during a call that lasts longer than two polls."""


class TooMuch(Exception):
    """What ran took too long, or too much memory; the message says which."""


class _Stop(BaseException):
    """Raised inside what is stopped; code that catches exceptions does not catch this one."""


@dataclass(eq=False)
class _Call:
    thread: int
    seconds: float
    """That it may take."""
    clock: Callable[[], float]
    bytes: int | None = None
    """Of the process, when the watcher first saw the call."""
    stopped: str = ""


@dataclass
class _Watch:
    calls: set[_Call] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    process: int = 0
    """The process whose thread watches: a fork has none."""


_watch = _Watch()


def bounded(work: Callable[[], T], *, seconds: float) -> T:
    """The result of `work`, run in this thread; TooMuch where it took longer, or more memory than MOST_GB."""
    global _watch  # noqa: PLW0603 - one watcher a process
    if (watch := _watch).process != os.getpid():
        watch = _watch = _Watch(process=os.getpid())
        threading.Thread(target=_look, args=(watch,), daemon=True, name="bounded").start()
    call = _Call(threading.get_ident(), seconds, awake_clock(2 * POLL_S))
    try:
        try:
            watch.calls.add(call)
            return work()
        finally:
            with watch.lock:
                watch.calls.discard(call)
                if call.stopped:  # perhaps too late to be raised where it belongs
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(call.thread), None)
    except _Stop:
        raise TooMuch(call.stopped) from None


def _look(watch: _Watch) -> None:
    while True:
        time.sleep(POLL_S)
        for call in list(watch.calls):
            held = _bytes()
            call.bytes = held if call.bytes is None else call.bytes
            grown = (held - call.bytes) / 2**30
            if call.clock() > call.seconds:
                _stop(watch, call, f"did not end in {call.seconds:g} s")
            elif grown > MOST_GB:
                _stop(watch, call, f"took {grown:.1f} GB of memory")


def _stop(watch: _Watch, call: _Call, why: str) -> None:
    with watch.lock:
        if call in watch.calls:
            watch.calls.discard(call)
            call.stopped = why
            thread, raised = ctypes.c_ulong(call.thread), ctypes.py_object(_Stop)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, raised)


def _bytes() -> int:
    """Memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096
    except OSError:
        return 0
