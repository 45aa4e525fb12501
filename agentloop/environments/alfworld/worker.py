"""A worker process that plays games, and the parent's end of it: requests and answers over a socket.

A request is a pickled tuple (method of `Player`, *arguments). An answer is a pickled pair (outcome, value)
with outcome `ok`, `policy_failed` or `failed`, and its length in front (8 bytes). The process ends when the
socket does, so it does not outlive its parent.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import agentloop
from agentloop.types import EnvironmentFailed, PolicyFailed

from .games import Game

LENGTH = struct.Struct("!Q")
GAMES_KEPT = 3
"""Translations a worker keeps: about 30 MB each for a kitchen."""


class Worker:
    """A process that plays one game at a time.

    A call that does not end well (timeout, cancellation, death, an error inside the game) ends the process:
    what it would answer next could not be trusted.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.recent: deque[str] = deque(maxlen=GAMES_KEPT)
        """Ids of the games whose translation the process still holds."""
        self.loads = 0
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._socket.setblocking(False)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentloop.environments.alfworld.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the parent, which then ends its workers
            )

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked; a process that died by itself counts until it is asked again."""
        return self._socket.fileno() >= 0 and self._process.poll() is None

    async def load(self, game: Game) -> None:
        """Make `game` the one that is played."""
        await self.call("load", game)
        self.loads += 1
        if game.game_id in self.recent:
            self.recent.remove(game.game_id)
        self.recent.append(game.game_id)

    async def call(self, method: str, *arguments: Any) -> Any:
        """Ask and wait; EnvironmentFailed ends the process, PolicyFailed does not."""
        request = pickle.dumps((method, *arguments))
        try:
            async with asyncio.timeout(self.timeout_s):
                await asyncio.get_running_loop().sock_sendall(self._socket, request)
                size = LENGTH.unpack(await self._exactly(LENGTH.size))[0]
                outcome, value = pickle.loads(await self._exactly(size))
        except TimeoutError:
            self.kill()
            raise EnvironmentFailed(
                f"worker process {self.pid} did not answer {method!r} in {self.timeout_s:g} s and was ended"
            ) from None
        except (OSError, EOFError):
            self.kill()
            told = f"worker process {self.pid} died during {method!r}: {self._ended()}"
            raise EnvironmentFailed(told) from None
        except BaseException:
            self.kill()
            raise
        if outcome == "policy_failed":
            raise PolicyFailed(value)
        if outcome == "failed":
            self.kill()
            raise EnvironmentFailed(f"{method!r} failed inside the game: {value}")
        return value

    def kill(self) -> None:
        """End the process and wait for it; nothing is left of it. May be called again."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    async def _exactly(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        chunks = bytearray()
        while len(chunks) < size:
            chunk = await loop.sock_recv(self._socket, size - len(chunks))
            if not chunk:
                raise EOFError
            chunks += chunk
        return bytes(chunks)

    def _ended(self) -> str:
        code = self._process.returncode
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def _environment() -> dict[str, str]:
    """The worker's environment: it finds this package, orders sets alike, and alfworld makes no folder."""
    root = str(Path(agentloop.__file__).parents[1])
    return {
        "ALFWORLD_DATA": os.environ.get("FEWSTEPS_DATA", root),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "PYTHONHASHSEED": "0",
    }


def main(handle: int) -> None:
    """Serve requests from the socket with descriptor `handle` until it closes."""
    from .game import Player, install_caches

    # A parent that is gone wants no answer: its end of the socket is closed, or breaks under a write.
    gone = (ConnectionError, EOFError, pickle.UnpicklingError)
    with socket.socket(fileno=handle) as channel, channel.makefile("rb") as requests, suppress(*gone):
        install_caches(games=GAMES_KEPT)
        player = Player()
        while True:
            body = pickle.dumps(answer(player, pickle.load(requests)))
            channel.sendall(LENGTH.pack(len(body)) + body)


def answer(player: Any, request: tuple[Any, ...]) -> tuple[str, Any]:
    """What one request gives; whatever the game raises is an answer, not the end of the process."""
    method, *arguments = request
    try:
        return "ok", getattr(player, method)(*arguments)
    except PolicyFailed as failure:
        return "policy_failed", str(failure)
    except Exception as error:  # the boundary of the process: the parent gets it, and decides
        return "failed", f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(int(sys.argv[1]))
