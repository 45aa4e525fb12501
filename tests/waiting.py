"""How tests wait for other processes: for what happens, never for a time that ought to be enough."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

HANG_S = 600.0
"""Seconds after which a test that hangs is ended. It is no measure of speed: nothing may come near it."""
LOOKS, LOOK_S = 1200, 0.05
"""How often is looked for the end of a process, and how long after another: a look counts, not the clock."""


@contextmanager
def held_port() -> Iterator[int]:
    """A port of this machine that nobody else is given while the block runs; a server in it may listen there.

    The socket is bound and does not listen; servers that reuse addresses, as ours do, may bind it as well.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def until_answered(address: str, server: subprocess.Popen[Any]) -> None:
    """Wait until a server answers, as long as its process lives."""
    while True:
        assert server.poll() is None, f"the server ended with {server.returncode}"
        try:
            urllib.request.urlopen(address, timeout=HANG_S).close()
            return
        except HTTPError:
            return
        except OSError:
            time.sleep(LOOK_S)


def running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    """Whether a process ends."""
    for _ in range(LOOKS):
        if not running(pid):
            return True
        time.sleep(LOOK_S)
    return False
