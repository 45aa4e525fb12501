"""The worker process: one `Player` behind a socket.

A request is a pickled tuple (method, *arguments), an answer a pickled pair (outcome, value) with outcome
`ok`, `policy_failed` or `failed`; both are sent with their length in front (8 bytes). The worker ends when
the socket does, so it does not outlive its parent.
"""

from __future__ import annotations

import pickle
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

from agentloop.types import PolicyFailed

LENGTH = struct.Struct("!Q")
METHODS = frozenset({"load", "reset", "step", "ask"})
GAMES_KEPT = 3
"""Translations a worker keeps: about 30 MB each for a kitchen."""


def packed(message: object) -> bytes:
    """A message with its length in front."""
    body = pickle.dumps(message)
    return LENGTH.pack(len(body)) + body


def main(handle: int) -> None:
    """Serve requests from the socket with descriptor `handle` until it closes."""
    from . import memo
    from .game import Player

    # A parent that is gone wants no answer: its end of the socket is closed, or breaks under a write.
    with socket.socket(fileno=handle) as channel, suppress(ConnectionError):
        memo.install(games=GAMES_KEPT)
        player = Player()
        while (request := _receive(channel)) is not None:
            channel.sendall(packed(answer(player, request)))


def answer(player: Any, request: tuple[Any, ...]) -> tuple[str, Any]:
    """What one request gives; whatever the game raises is an answer, not the end of the process."""
    method, *arguments = request
    try:
        if method not in METHODS:
            raise ValueError(f"method {method!r}: expected one of {sorted(METHODS)}")
        return "ok", getattr(player, method)(*arguments)
    except PolicyFailed as failure:
        return "policy_failed", str(failure)
    except Exception as error:  # the boundary of the process: it is told to the parent, which decides
        return "failed", f"{type(error).__name__}: {error}"


def _receive(channel: socket.socket) -> Any:
    head = _exactly(channel, LENGTH.size)
    body = head and _exactly(channel, LENGTH.unpack(head)[0])
    return pickle.loads(body) if body else None


def _exactly(channel: socket.socket, size: int) -> bytes:
    """`size` bytes, or none at all when the other end has closed."""
    chunks = bytearray()
    while len(chunks) < size:
        chunk = channel.recv(min(size - len(chunks), 1 << 20))
        if not chunk:
            return b""
        chunks += chunk
    return bytes(chunks)


if __name__ == "__main__":
    main(int(sys.argv[1]))
