"""A client for Search-R1's retrieval interface: searches that wait at the same time go as one request.

    POST {base}/retrieve   {"queries": [...], "topk": 3, "return_scores": true}
    200                    {"result": [[{"document": {"id", "contents"}, "score"}, ...], ...]}

Scores are always asked for: without them Search-R1's own server fails on any number of queries but two.
Tried again (`agentloop.retries`): no connection, a timeout, 429 and 5xx. Not tried again: other refusals,
and an answer that makes no sense. Then the search fails, and with it its episode, as `retriever_failed`.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from agentloop.http import PostFailed, open_session, post, read_json
from agentloop.retries import Retries, WaitTooLong, retried, retry_after
from occupancy.record.specs import Count, NotNegative, Positive, check

from .passages import Passage, split_contents
from .retriever import Retriever, RetrieverFailed

MOST_BYTES = 64 << 20
"""Of one answer; passages of a full batch are a hundredth of it."""
CLOSED = "the retriever was closed while the search was under way"
Batch = list[tuple[str, asyncio.Future[list[Passage]]]]


@dataclass(frozen=True)
class Limits:
    """How a client asks."""

    batch: Count = 64
    """Most queries a request."""
    linger_s: NotNegative = 0.002
    """How long a query waits for company, seconds."""
    concurrency: Count = 8
    """Most requests at a time."""
    timeout_s: Positive = 30.0
    """For one request, seconds."""
    retries: Retries = field(default_factory=lambda: Retries(3, first_s=1.0, most_s=30.0))

    def __post_init__(self) -> None:
        check(self)


class _TryAgain(Exception):
    """The server may answer the same request later."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def remote(base: str, *, limits: Limits | None = None) -> Retriever:
    """A retriever behind `base`, http://host:port with or without /retrieve."""
    client = Client(base.rstrip("/").removesuffix("/retrieve") + "/retrieve", limits or Limits())
    return Retriever("search-r1 over http", client.search, client.close)


class Client:
    """One server; belongs to one event loop, where its connections are opened by the first search."""

    def __init__(self, url: str, limits: Limits) -> None:
        self._url, self._limits = url, limits
        self._session: Any = None
        self._waiting: dict[int, Batch] = defaultdict(list)
        self._sending: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(limits.concurrency)

    async def search(self, query: str, k: int) -> Sequence[Passage]:
        """The server's k best passages; RetrieverFailed when they cannot be had."""
        future: asyncio.Future[list[Passage]] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[k]
        waiting.append((query, future))
        if len(waiting) >= self._limits.batch:
            self._start(self._send(self._waiting.pop(k), k))
        elif len(waiting) == 1:
            self._start(self._linger(k))
        return await future

    async def close(self) -> None:
        """Give up what is under way, and close the connections."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        for batch in self._waiting.values():
            _fail(batch, RetrieverFailed(CLOSED))
        self._waiting.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(sending)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _linger(self, k: int) -> None:
        await asyncio.sleep(self._limits.linger_s)
        # Nothing waits any more where a full batch went off in the meantime.
        if batch := self._waiting.pop(k, []):
            await self._send(batch, k)

    async def _send(self, batch: Batch, k: int) -> None:
        try:
            found = await self._asked([query for query, _ in batch], k)
        except asyncio.CancelledError:
            _fail(batch, RetrieverFailed(CLOSED))
            raise
        except Exception as error:  # whatever it is belongs to those who wait
            _fail(batch, error)
            return
        for (_, future), passages in zip(batch, found, strict=True):
            if not future.done():
                future.set_result(passages)

    async def _asked(self, queries: list[str], k: int) -> list[list[Passage]]:
        async def once() -> list[list[Passage]]:
            async with self._free:
                return read_result(await self._posted(queries, k), len(queries))

        retries = self._limits.retries
        seed = crc32("\0".join(queries).encode("utf-8", "surrogatepass"))
        try:
            return await retried(
                once, retries, seed=seed, asked_wait=lambda e: e.wait_s if isinstance(e, _TryAgain) else None
            )
        except _TryAgain as error:
            told = f"{self._url}: {error}, {retries.most + 1} times; is it running?"
            raise RetrieverFailed(told) from error
        except WaitTooLong as error:
            raise RetrieverFailed(f"{self._url} {error} ({error.__cause__})") from error

    async def _posted(self, queries: list[str], k: int) -> Any:
        if self._session is None:
            self._session = open_session("hotpotqa")
        body = {"queries": queries, "topk": k, "return_scores": True}
        timeout_s = self._limits.timeout_s
        try:
            given = await post(self._session, self._url, body, timeout_s=timeout_s, most_bytes=MOST_BYTES)
            if given.status == 429 or given.status >= 500:
                raise _TryAgain(f"status {given.status}", retry_after(given.retry_after) or 0.0)
            if given.status != 200:
                said = " ".join(given.body[:200].decode("utf-8", "replace").split())
                raise RetrieverFailed(f"{self._url}: status {given.status} ({said}), expected 200")
            return read_json(given.body)
        except PostFailed as error:
            if error.kind in ("refused", "broken", "timeout"):
                raise _TryAgain(str(error)) from error
            raise RetrieverFailed(f"{self._url}: {error}") from error


def read_result(body: Any, expected: int) -> list[list[Passage]]:
    """Passages of each query from an answer's body; RetrieverFailed where it is not one list a query."""
    result = body.get("result") if isinstance(body, dict) else None
    if not isinstance(result, list) or len(result) != expected:
        got = len(result) if isinstance(result, list) else type(result).__name__
        raise RetrieverFailed(f"the retriever's answer has result={got}: expected {expected} lists")
    try:
        return [[_passage(item) for item in found] for found in result]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RetrieverFailed(f"the retriever's answer has no such documents ({error!r})") from error


def _fail(batch: Batch, error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)


def _passage(item: dict[str, Any]) -> Passage:
    """A hit: {"document", "score"}, a score left out by some servers, or a bare document."""
    document = item.get("document", item)
    title, text = split_contents(document["contents"])
    doc_id, score = str(document.get("id", "")), item.get("score")
    # What cannot be stored fails here: half a character, or a score that is no number.
    f"{doc_id}{title}{text}".encode()
    if score is not None and not math.isfinite(float(score)):
        raise ValueError(f"score {score}")
    return Passage(doc_id, title, text, None if score is None else float(score))
