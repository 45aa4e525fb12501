"""The end of a process that was killed, whatever it printed last."""

from __future__ import annotations

from asyncio.subprocess import Process
from contextlib import suppress

PIECE = 1 << 20


async def ended(process: Process) -> int:
    """The exit status of a process that ends; what it printed and nobody read is thrown away.

    Its end is noticed once all was read, and nothing is read while much of it waits for somebody.
    """
    if process.stdout is not None:
        with suppress(RuntimeError):  # somebody reads already
            while await process.stdout.read(PIECE):
                pass
    return await process.wait()
