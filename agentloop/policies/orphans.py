"""The processes of an engine end with the one that started it: after a kill they would hold their memory."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

LOOK_S = 1.0


def end_with(owner: int) -> None:
    """End this process, and the one between it and `owner`, soon after `owner` has ended.

    Nothing is watched where `owner` is neither this process's parent nor its parent's parent, as under Ray,
    nor where the system does not say who a parent is.
    """
    parent = os.getppid()
    core = os.getpid() if parent == owner else parent
    if parent_of(core) == owner:
        Thread(target=_watch, args=(core, owner), daemon=True).start()


def parent_of(process: int) -> int:
    """The parent's id; 0 where the process is gone, or the system has no /proc."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _watch(core: int, owner: int) -> None:
    # A process whose parent has ended is given another one at once.
    while parent_of(core) == owner:
        time.sleep(LOOK_S)
    for process in dict.fromkeys((core, os.getpid())):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
