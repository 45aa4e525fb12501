"""A harness's own command as a child of the server: repeated until the run needs no further episode."""

from __future__ import annotations

import asyncio
import os
import shlex
from asyncio.subprocess import Process
from contextlib import suppress

from agentloop.awake import awake_clock
from agentloop.serve.desk import CLOSED, Desk
from occupancy.record.errors import InputError, RunError

REWARD_S = 10.0
"""Seconds after the command's end in which rewards of its last episodes arrive."""
LOOK_S = 0.1
"""Seconds between two looks whether they have."""
END_S = 60.0
"""Seconds that a command has to end once the run has what it needs, or 5 after it was asked to."""


async def play(command: str, address: str, desk: Desk) -> None:
    """Run a command until every task that it has shown has the episodes that it needs; then close the run.

    Args:
        command: words as in a shell, without a shell; {url} and {port} stand for the server's.
        address: of the server, also in its variable FEWSTEPS_URL.
        desk: what it plays with.

    Raises:
        InputError: it cannot be started.
        RunError: it failed, or played nothing although episodes are needed.
    """
    port = address.rpartition(":")[2]
    while True:
        ended = len(desk.ended)
        try:
            program, *words = [
                word.replace("{url}", address).replace("{port}", port) for word in shlex.split(command)
            ]
            process = await asyncio.create_subprocess_exec(
                program, *words, stdout=2, env={**os.environ, "FEWSTEPS_URL": address}
            )
        except (OSError, ValueError) as error:
            raise InputError(f"--play {command}: {error}; expected a program and its arguments") from error
        code = await _end_of(process)
        if desk.refuse is not None:
            return  # the run has ended, and the command with it
        if code:
            raise RunError(f"--play {command}: it ended with {code}, see above; the same command goes on")
        waits, plays = await _settled(desk)
        if not desk.tasks:
            raise RunError(f"--play {command}: it made no call of {address}/v1; {{url}} stands for {address}")
        if not plays:
            return desk.refuse_further(CLOSED)
        if waits < plays:
            lacking = plays - waits
            raise RunError(f"--play {command}: {lacking} of its episodes have no reward: see --rewards")
        if len(desk.ended) == ended:
            raise RunError(
                f"--play {command}: it ended without a new episode, and {waits} are needed; it has to play "
                f"every task once more each time"
            )


async def _end_of(process: Process) -> int:
    try:
        return await process.wait()
    finally:
        with suppress(ProcessLookupError):
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 5)
                except TimeoutError:
                    process.kill()
                    await process.wait()


async def _settled(desk: Desk) -> tuple[int, int]:
    """Units that wait for an episode, and units in play, once they are the same or nothing more arrives."""
    clock = awake_clock(2 * LOOK_S)
    while (status := desk.status())["needed_episodes"] < status["units_in_play"] and clock() < REWARD_S:
        await asyncio.sleep(LOOK_S)
    return status["needed_episodes"], status["units_in_play"]
