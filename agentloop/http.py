"""One POST to a server, within bounds: a deadline for the whole attempt, a limit on bytes, no redirect.

Both clients of servers (models, retrievers) send here, so that what a hostile or broken server may do is
bounded in one place. Answers are asked for uncompressed: a compressed one can be a thousand times its size.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from occupancy.record.errors import imported


class Response(NamedTuple):
    """What a server gave."""

    status: int
    body: bytes
    retry_after: str
    """Its header, or nothing."""


@dataclass
class PostFailed(Exception):
    """No response, or one that is no HTTP or too large."""

    what: str
    kind: str
    """refused: nothing listens there, or no name, or no TLS. broken: the connection ended. timeout: the
    deadline passed. redirect: it names another address. unreadable: what came is no response at all."""

    def __str__(self) -> str:
        return self.what


def open_session(extra: str) -> Any:
    """A session of the running loop, without cookies; MissingExtra, which names `extra`, without aiohttp."""
    aiohttp = imported("aiohttp", extra)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=True,
    )


async def post(
    session: Any,
    url: str,
    body: Any,
    *,
    timeout_s: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """POST `body` as JSON.

    Args:
        session: from `open_session`.
        url: the address; nothing is sent anywhere else.
        body: plain objects.
        timeout_s: seconds from the start of the attempt to the last byte.
        most_bytes: of the response's body.
        headers: beside the ones that JSON needs.

    Raises:
        PostFailed: by kind.
    """
    import aiohttp

    sent = {"Content-Type": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    answer = bytearray()
    try:
        async with session.post(
            url,
            data=json.dumps(body).encode(),
            headers=sent,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            if 300 <= response.status < 400:
                place = str(response.headers.get("Location", "nowhere"))
                raise PostFailed(
                    f"status {response.status}, a redirect to {place[:200]}: redirects are not followed; "
                    f"give the address of the server itself",
                    "redirect",
                )
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise PostFailed("the response is compressed, which was not asked for", "unreadable")
            async for chunk in response.content.iter_any():
                answer += chunk
                if len(answer) > most_bytes:
                    raise PostFailed(f"the response has more than {most_bytes:,} bytes", "unreadable")
            return Response(response.status, bytes(answer), response.headers.get("Retry-After", ""))
    except TimeoutError:
        raise PostFailed(f"no answer in {timeout_s:g} s", "timeout") from None
    except aiohttp.ClientSSLError as error:
        raise PostFailed(f"TLS failed: {error}", "refused") from None
    except aiohttp.ClientConnectorError as error:
        raise PostFailed(f"the connection failed: {error}", "refused") from None
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as error:
        raise PostFailed(f"the connection ended: {error or type(error).__name__}", "broken") from None
    except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, ValueError) as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise PostFailed(f"what came is no HTTP response ({told[:200]})", "unreadable") from None


def read_json(body: bytes | str) -> Any:
    """Plain objects of a response's body; PostFailed where it is no JSON, or nested too deep to be read."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        start = body[:80].decode("utf-8", "replace") if isinstance(body, bytes) else body[:80]
        told = f"{error}; it begins {' '.join(start.split())!r}" if body else "it is empty"
        raise PostFailed(f"the response is no JSON ({told})", "unreadable") from None
