"""The parent's end of one worker process, over a socket that any event loop can wait for."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import agentloop
from agentloop.types import EnvironmentFailed, PolicyFailed

from .games import Game
from .worker import GAMES_KEPT, LENGTH, packed


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
        try:
            async with asyncio.timeout(self.timeout_s):
                await asyncio.get_running_loop().sock_sendall(self._socket, packed((method, *arguments)))
                outcome, value = pickle.loads(
                    await self._exactly(LENGTH.unpack(await self._exactly(LENGTH.size))[0])
                )
        except TimeoutError:
            self.kill()
            raise EnvironmentFailed(
                f"worker process {self.pid} did not answer {method!r} in {self.timeout_s:g} s and was ended"
            ) from None
        except (OSError, EOFError):
            self.kill()
            raise EnvironmentFailed(
                f"worker process {self.pid} died during {method!r}: {self._ended()}"
            ) from None
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
