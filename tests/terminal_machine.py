"""What tests of terminal tasks need of a machine: a sandbox that starts, and images kept between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import pytest

from agentloop.environments.terminal.sandbox.images import Image, open_image
from agentloop.environments.terminal.sandbox.sandbox import open_sandbox
from agentloop.types import EnvironmentFailed
from occupancy.record.errors import InputError

Result = TypeVar("Result")


@cache
def why_not() -> str:
    """Why this machine can start no sandbox; empty where it can."""

    async def start() -> None:
        async with open_sandbox(open_image().layers):
            pass

    try:
        with ThreadPoolExecutor(1) as thread:  # the caller may be in an event loop
            thread.submit(asyncio.run, start()).result()
    except (InputError, EnvironmentFailed) as error:
        return str(error)
    return ""


def host_image() -> Image:
    """The image over the machine's /usr; skips, or in CI fails, where no sandbox can be started."""
    if reason := why_not():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no sandbox on this machine: {reason}")
    return open_image()


async def together(awaitables: Iterable[Awaitable[Result]]) -> list[Result]:
    """What they return; where one fails, once all have ended: none is left in the middle of a start."""
    futures = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    await asyncio.gather(*futures, return_exceptions=True)
    return [future.result() for future in futures]


def finished(function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """What an async function returns, in an event loop of its own."""

    async def run() -> Result:
        return await function(*arguments)

    return asyncio.run(run())
