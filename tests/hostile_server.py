"""A server that misbehaves as its path says: http://HOST:PORT/MODE/v1, one mode a way to fail a client."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

TURN = "forward"
DEEP = b"[" * 200_000 + b"]" * 200_000


def completion(text: Any = TURN, *, usage: Any = (10, 5, 15), **choice: Any) -> dict[str, Any]:
    """An answer; `usage` is (prompt, completion, total), an object, or None."""
    if isinstance(usage, tuple):
        usage = dict(zip(("prompt_tokens", "completion_tokens", "total_tokens"), usage, strict=True))
    whole = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | choice
    return {"choices": [whole], "usage": usage}


def _says(text: str) -> dict[str, Any]:
    return {"error": {"message": text}}


def _forms(key: str) -> str:
    """A key as servers and their logs may repeat it."""
    escaped = "".join(f"\\u{ord(c):04x}" for c in key)
    return " | ".join([key, escaped, "".join(f"%{ord(c):02X}" for c in key), " ".join(key)])


@cache
def bomb() -> bytes:
    """100 MB of one letter, compressed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = [packer.compress(b"a" * (1 << 20)) for _ in range(100)]
    return b"".join([*packed, packer.flush()])


Whole = tuple[int, dict[str, str], Any]
_HIDDEN_REASONING = {
    "completion_tokens": 2,
    "prompt_tokens": 3,
    "completion_tokens_details": {"reasoning_tokens": 50},
}
ANSWERS: dict[str, Callable[[str], Whole]] = {
    "header": lambda key: (200, {"x": "y" * 100_000}, completion()),
    "html": lambda key: (200, {}, b"<html>log in first</html>"),
    "deep": lambda key: (200, {}, b'{"choices":' + DEEP + b"}"),
    "empty": lambda key: (200, {}, b""),
    "bad_utf8": lambda key: (200, {}, json.dumps(completion("XX")).encode().replace(b"XX", b"\xff\xfe")),
    "nan": lambda key: (200, {}, json.dumps(completion()).encode().replace(b"5,", b"NaN,")),
    "negative": lambda key: (200, {}, completion(usage=(-10, -5, -15))),
    "huge": lambda key: (200, {}, completion(usage=(10**30, 10**30, 10**30))),
    "no_usage": lambda key: (200, {}, completion(usage=None)),
    "zeros": lambda key: (200, {}, completion(usage=(0, 0, 0))),
    "hidden": lambda key: (200, {}, completion(usage=(20, 34, 502))),
    "reasoning": lambda key: (200, {}, completion(usage=_HIDDEN_REASONING)),
    "no_choices": lambda key: (200, {}, {"choices": []}),
    "content_number": lambda key: (200, {}, completion(12345)),
    "content_object": lambda key: (200, {}, completion({"a": 1})),
    "long": lambda key: (200, {}, completion("x" * 3_000_000)),
    "content_list": lambda key: (200, {}, completion([{"text": {"x": 1}}])),
    "surrogate": lambda key: (200, {}, completion("\ud800 \0")),
    "escapes": lambda key: (200, {}, completion("\x1b]0;title\x07\x1b[2Jforward")),
    "ids": lambda key: (200, {}, completion(token_ids=[2**31 - 1, -1, 1.5])),
    "redirect": lambda key: (307, {"location": "http://127.0.0.2:1/v1/chat/completions"}, b""),
    "busy": lambda key: (429, {"retry-after": "9" * 400}, b""),
    "gzip": lambda key: (200, {"content-encoding": "gzip"}, bomb()),
    "echo_401": lambda key: (401, {}, _says(f"no such key: Bearer {key}")),
    "echo_500": lambda key: (500, {}, f"<html>{_forms(key)}</html>".encode()),
    "echo_cut": lambda key: (400, {}, ("p" * (2000 - len(key) + 4) + key).encode()),
    "echo_error_cut": lambda key: (200, {}, {"error": "p" * (500 - len(key) + 4) + key}),
    "echo_escaped": lambda key: (400, {}, _forms(key).encode()),
    "echo_turn": lambda key: (200, {}, completion(f"forward {_forms(key)}", token_ids=[1, 2, 3])),
    "echo_parts": lambda key: (200, {}, completion([{"text": key[:9]}, {"text": key[9:]}])),
    "echo_finish": lambda key: (200, {}, completion(finish_reason=key)),
    "escapes_400": lambda key: (400, {}, b"\x1b]0;title\x07\x1b[31mred"),
    "unknown": lambda key: (404, {}, b"no such mode"),
}
"""Mode -> from the key that was sent, status, headers and body."""
ENDLESS = {"drip", "endless", "silent", "reset", "half"}
"""Modes that are no whole response."""
LOST = {
    "header",
    "html",
    "deep",
    "empty",
    "gzip",
    "long",
    "endless",
    "reset",
    "half",
    "redirect",
    "busy",
    "echo_401",
    "unknown",
}
"""Modes after which the server counts as lost: the run stops, and nothing becomes data."""


class Hostile:
    """The server; `seen` counts requests by mode."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.base = ""

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                if (first := await reader.readexactly(1)) == b"\x16":  # TLS, which it does not speak
                    writer.write(b"HTTP/1.1 400 X\r\n\r\n")
                    return
                head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = (line.partition(":") for line in head.split("\r\n")[1:])
                fields = {name.lower(): value.strip() for name, _, value in lines}
                await reader.readexactly(int(fields.get("content-length", 0)))
                mode = head.split()[1].split("/")[1]
                self.seen[mode] = self.seen.get(mode, 0) + 1
                key = fields.get("authorization", "").removeprefix("Bearer ")
                if mode in ENDLESS:
                    await _endless(mode, writer)
                    return
                status, headers, given = ANSWERS[mode](key)
                body = given if isinstance(given, bytes) else json.dumps(given).encode()
                told = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{told}\r\n".encode() + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass  # the client hung up, or the test is over
        finally:
            writer.close()


async def _endless(mode: str, writer: asyncio.StreamWriter) -> None:
    start = b"HTTP/1.1 200 X\r\ncontent-length: 1000000000000\r\n\r\n"
    if mode == "silent":
        await asyncio.sleep(3600)
    writer.write(start + b'{"choices": [')
    await writer.drain()
    if mode == "reset":
        writer.transport.abort()
    while mode == "drip":
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)
    while mode == "endless":
        writer.write(b"a" * (1 << 16))
        await writer.drain()


@asynccontextmanager
async def hostile() -> AsyncIterator[Hostile]:
    """A server on a free port of this machine."""
    told = Hostile()
    server = await asyncio.start_server(told._connection, "127.0.0.1", 0, limit=2**22)
    told.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield told
    finally:
        server.close()


MODES = sorted([*ENDLESS, *ANSWERS])
