"""How our own servers listen: bodies bounded in size and time, a client's mistakes out of the log, an end.

Both servers (HotpotQA's retriever, `fewsteps serve`) answer through it. aiohttp decompresses nothing, since a
compressed body can be a thousand times its size.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

from occupancy.record.errors import RunError, imported

if TYPE_CHECKING:
    from aiohttp import web

MEGABYTE = 1 << 20
MOST_BYTES = 8 * MEGABYTE
"""Of a request's body."""
BODY_S = 30.0
"""Seconds that a client has to send its request."""
END_S = 1.0
"""Seconds that open requests have when the server ends."""

_LOG = logging.getLogger("agentloop.listening")
_LOG.addFilter(lambda record: not isinstance((record.exc_info or (None, None))[1], _bad_messages()))


class Unreadable(Exception):
    """A request that cannot be read, with the HTTP status that says so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


async def body_of(request: web.Request) -> bytes:
    """The body of a request; Unreadable where it is compressed, too large, too slow or broken."""
    aio = imported("aiohttp.web", "agents")
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise Unreadable(415, "Content-Encoding: expected the JSON itself, not compressed")
    try:
        async with asyncio.timeout(BODY_S):
            body: bytes = await request.read()
    except TimeoutError:
        raise Unreadable(408, f"expected the whole request within {BODY_S:g} s") from None
    except aio.HTTPRequestEntityTooLarge:
        raise Unreadable(413, f"the body has more than {MOST_BYTES:,} bytes") from None
    except (OSError, aio.RequestPayloadError) as error:
        # The client went away, or what it sent is no body.
        raise Unreadable(400, f"the body cannot be read ({type(error).__name__})") from None
    return body


async def listening(
    app: web.Application, host: str, port: int, *, share_port: bool = False
) -> tuple[web.AppRunner, int]:
    """Start to answer at host:port; `cleanup` of the runner ends it within about `END_S`.

    Args:
        app: what answers.
        host: the address.
        port: 0 takes a free one.
        share_port: whether several processes may listen there.

    Returns:
        The runner, and the port.

    Raises:
        RunError: the address is taken, or is none of this machine's.
    """
    aio = imported("aiohttp.web", "agents")
    # Bodies stay as they were sent: one that is no gzip would fail inside aiohttp, with a traceback.
    runner: web.AppRunner = aio.AppRunner(
        app, access_log=None, logger=_LOG, auto_decompress=False, shutdown_timeout=END_S
    )
    await runner.setup()
    try:
        await aio.TCPSite(runner, host, port, reuse_port=share_port or None).start()
    except OSError as error:
        await runner.cleanup()
        raise RunError(f"cannot listen at {host}:{port} ({error}): name another --host or --port") from error
    return runner, int(runner.addresses[0][1])


def stop_on_signals(stop: asyncio.Event) -> None:
    """Set the event at SIGTERM or SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


def _bad_messages() -> tuple[type[Exception], ...]:
    """What aiohttp would log with a traceback, and is the client's doing: no HTTP, or a lost connection."""
    from aiohttp.http_exceptions import HttpProcessingError

    return HttpProcessingError, OSError
