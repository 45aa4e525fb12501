"""A small OpenAI-compatible server for tests and measurements: answers at once, fails as told, keeps its own
bill.

    python -m benchmarks mock_server --port 8123 --bill bill.txt --fail server=.02,drop=.01 --delay .3

The turn depends on the messages and the seed alone. It plays the toy corridor: the last observation says what
to do, and a model named student-… errs. Every billed answer is one line of the bill, on disk before the
answer is sent: model, prompt tokens, output tokens, seed. Port 0 takes a free one, which is printed.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
FAILURES = ("busy", "server", "hang", "drop", "after", "malformed", "no_usage", "filter", "overflow")
"""busy 429; server 500, not billed; hang and drop: billed, never answered; after: billed, then 502;
malformed: billed, half a JSON; no_usage: billed, says nothing of it; filter: billed, no text; overflow: 400,
context too long."""

REFUSALS = {
    "busy": (429, "slow down"),
    "server": (503, "overloaded"),
    "overflow": (400, "This model's maximum context length is 8 tokens"),
}


@dataclass
class Mock:
    """What the server does, and what it has counted."""

    fail: dict[str, float] = field(default_factory=dict)
    delay_s: float = 0.0
    bill: IO[str] | None = None
    requests: int = 0
    keys: set[str] = field(default_factory=set)
    billed: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    """How often each failure was played."""
    refuse_all: int = 0
    """A status that every request gets; 0 = none."""
    last: dict[str, Any] = field(default_factory=dict)

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        """Start listening; port 0 takes a free one."""
        return await asyncio.start_server(self._connection, host, port, limit=2**22)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lower = head.lower()
                length = int(_between(lower, b"content-length:", b"\r\n") or 0)
                key = _between(head, b"uthorization: Bearer ", b"\r\n").decode()
                body = json.loads(await reader.readexactly(length)) if length else {}
                status, payload = await self._answer(body, key)
                if status == 0:
                    break
                writer.write(
                    b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                    % (status, len(payload), payload)
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client hung up: that is its right
        except asyncio.CancelledError:
            pass  # the server ends
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], key: str) -> tuple[int, bytes]:
        self.requests += 1
        self.keys.add(key)
        self.last = body
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.refuse_all:
            return self.refuse_all, _error(f"refused, your key is {key}")
        number = self.requests
        failure = self._draw(number)
        self.told[failure] += 1
        if failure in REFUSALS:
            status, message = REFUSALS[failure]
            return status, _error(message)
        text, ids = play(body)
        usage = {"prompt_tokens": _prompt_tokens(body), "completion_tokens": len(ids)}
        usage["total_tokens"] = sum(usage.values())
        self._charge(body, usage)
        if failure == "hang":
            await asyncio.sleep(3600)
        if failure in ("drop", "after"):
            return (0, b"") if failure == "drop" else (502, _error("bad gateway"))
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": "stop",
        }
        if failure == "filter":
            choice |= {"message": {"role": "assistant", "content": None}, "finish_reason": "content_filter"}
        if body.get("return_token_ids"):
            choice["token_ids"] = ids
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": str(i), "logprob": -0.5} for i in ids]}
        given = {"id": str(number), "object": "chat.completion", "choices": [choice], "usage": usage}
        if failure == "no_usage":
            del given["usage"]
        payload = json.dumps(given).encode()
        return 200, payload[: len(payload) // 2] if failure == "malformed" else payload

    def _draw(self, number: int) -> str:
        u = random.Random(number).random()
        for name, share in self.fail.items():
            if (u := u - share) < 0:
                return name
        return ""

    def _charge(self, body: dict[str, Any], usage: dict[str, int]) -> None:
        self.billed["calls"] += 1
        self.billed["output"] += usage["completion_tokens"]
        self.billed["prompt"] += usage["prompt_tokens"]
        if self.bill is not None:
            tokens = f"{usage['prompt_tokens']} {usage['completion_tokens']}"
            self.bill.write(f"{body['model']} {tokens} {body.get('seed', -1)}\n")
            self.bill.flush()


def play(body: dict[str, Any]) -> tuple[str, list[int]]:
    """The turn for a request, and ids that stand for its tokens; equal requests get equal turns."""
    last = body["messages"][-1]["content"]
    right = "climb" if "ditch" in last else "forward"
    seed = blake2b(json.dumps([body["messages"], body.get("seed")]).encode(), digest_size=8).digest()
    rng = random.Random(seed)
    text = "stumble" if body["model"].startswith("student") and rng.random() < 0.4 else right
    return text, [rng.randrange(1000) for _ in range(3 + rng.randrange(20))]


def _prompt_tokens(body: dict[str, Any]) -> int:
    return sum(4 + len(re.findall(r"\w+|[^\w\s]", m["content"] or "")) for m in body["messages"])


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message}}).encode()


def _between(text: bytes, start: bytes, end: bytes) -> bytes:
    at = text.find(start)
    return b"" if at < 0 else text[at + len(start) : text.index(end, at)].strip()


@contextmanager
def serving(*options: str) -> Iterator[tuple[int, int]]:
    """Port and process of a server of its own, for the time of a `with`."""
    command = [sys.executable, "-m", "benchmarks", "mock_server", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline()), server.pid
        finally:
            server.kill()


async def main(port: int = 0, bill: Path = Path("/dev/null"), delay: float = 0.0, fail: str = "") -> None:
    shares = {name: float(share) for name, _, share in (p.partition("=") for p in fail.split(",") if p)}
    if unknown := set(shares) - set(FAILURES):
        sys.exit(f"--fail {sorted(unknown)}: expected {', '.join(FAILURES)}")
    with bill.open("a") as billed:
        server = await Mock(shares, delay, billed).serve(port=port)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()
