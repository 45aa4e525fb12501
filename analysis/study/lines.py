"""Requests to another process as lines of JSON on its standard input and output: both ends.

The process that answers may print what it likes: its standard output is turned into its log before it begins.
Its errors come back as the same errors; where it dies, or fails in a way that it does not expect, the one
that asked gets `WorkerDied`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from agentloop.processes import ended
from occupancy.record import errors
from occupancy.record.errors import FewstepsError, RunError

LINE = 2**24
"""Most bytes of a line."""
LOOK_EVERY_S = 0.2
"""Seconds between looks at whether a process lives."""
END_S = 30.0
"""Seconds that a process has to end by itself once its input has closed."""


class WorkerDied(RunError):
    """A process ended, or cannot go on; what it did may be done again by another one."""


class Peer:
    """A process that answers requests, several at a time; made by `start`."""

    def __init__(self, process: asyncio.subprocess.Process, *, log: Path, own_group: bool) -> None:
        self._process, self._log, self._own_group = process, log, own_group
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._reader = asyncio.create_task(self._read())
        self.ended = False
        """Whether it was ended from here while it could still be asked."""

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._reader.done()

    async def ask(self, **request: Any) -> Any:
        """The answer to one request.

        Raises:
            WorkerDied: the process is gone, or an error that it did not expect.
            FewstepsError: what it raised on purpose.
        """
        if not self.alive:
            raise self._died()
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        try:
            # A broken pipe is noticed by the reader, which then answers everything that waits.
            with suppress(ConnectionError):
                self._process.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
                await self._process.stdin.drain()
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def end(self, *, wait_s: float = END_S) -> None:
        """Close its input and wait; kill it, and what it started, where it takes longer."""
        self.ended = self.ended or self.alive
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._process.wait()
        self._kill()
        await self._process.wait()
        await self._reader

    def _kill(self) -> None:
        # Its group outlives it where something that it started has not ended.
        with suppress(ProcessLookupError):
            if self._own_group:
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()

    async def _read(self) -> None:
        answers = asyncio.create_task(self._answers())
        # A process that it forked keeps its end of the pipe open: its death must be looked for.
        while not answers.done() and self._process.returncode is None:
            await asyncio.wait([answers], timeout=LOOK_EVERY_S)
        await asyncio.wait([answers], timeout=LOOK_EVERY_S)
        answers.cancel()
        await asyncio.wait([answers])
        self._kill()
        await ended(self._process)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._died())

    async def _answers(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # no JSON, or a line without end
            while line := await self._process.stdout.readline():
                answer = json.loads(line)
                waiting = self._waiting.get(answer["id"])
                if waiting is None or waiting.done():
                    continue
                if "error" in answer:
                    waiting.set_exception(_error(answer["error"], answer["message"]))
                else:
                    waiting.set_result(answer["result"])

    def _died(self) -> WorkerDied:
        code = self._process.returncode
        how = "is gone" if code is None else f"ended with {code}"
        return WorkerDied(f"process {self.pid} {how}: see {self._log}")


async def start(
    module: str, *, log: Path, environment: Mapping[str, str] | None = None, own_group: bool = True
) -> Peer:
    """Start `python -m module` as a peer.

    Args:
        module: one whose main program calls `serve`.
        log: file that its standard error is added to.
        environment: changes to its environment.
        own_group: give it a process group of its own, which ends with it.
    """
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as errors_to:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors_to,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
            start_new_session=own_group,
            limit=LINE,
        )
    return Peer(process, log=log, own_group=own_group)


async def serve(answer: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
    """Answer requests on standard input, all at the same time, until it closes; then stop what is left."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    # What libraries and their processes print goes to the log.
    os.dup2(2, 1)
    requests = asyncio.StreamReader(limit=LINE)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(requests), sys.stdin
    )
    tasks: set[asyncio.Task[None]] = set()

    async def one(request: dict[str, Any]) -> None:
        reply: dict[str, Any] = {"id": request.pop("id")}
        try:
            reply["result"] = await answer(request)
        except FewstepsError as error:
            reply |= {"error": type(error).__name__, "message": str(error)}
        except Exception as error:  # the boundary of the process: its log has the traceback
            traceback.print_exc(file=sys.stderr)
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            reply |= {"error": WorkerDied.__name__, "message": why}
        with suppress(OSError):
            replies.write(json.dumps(reply) + "\n")

    while line := await requests.readline():
        task = asyncio.create_task(one(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _error(name: str, message: str) -> FewstepsError:
    if name == WorkerDied.__name__:
        return WorkerDied(message)
    kind = getattr(errors, name, RunError)
    made: FewstepsError = RunError(message) if name == "MissingExtra" else kind(message)
    return made
