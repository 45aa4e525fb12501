"""A server with Search-R1's retrieval interface over the embedded index.

    python -m agentloop.environments.hotpotqa serve --corpus wiki-18.jsonl --port 8000 --processes 2

Several processes share the port and the memory-mapped index; the system distributes connections among them.
There is no authentication: it listens on this machine alone unless `host` names another address. A request
that cannot be read gets a status from 400 to 499 and leaves nothing in the log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.record.errors import InputError, MissingExtra, RunError

from .index import Bm25, open_bm25
from .passages import Passage, join_contents

if TYPE_CHECKING:
    from aiohttp import web

TOPK = 3
MOST = 1000
"""Queries in one request, and passages for one query."""
MEGABYTE = 1 << 20
BODY_S = 30.0
"""Seconds that a client has to send its request."""
END_S = 1.0
"""Seconds that open requests have when the server ends."""


_LOG = logging.getLogger("agentloop.retriever")
_LOG.addFilter(lambda record: not isinstance((record.exc_info or (None, None))[1], _bad_messages()))


class BadRequest(Exception):
    """Answered with status 422 and the reason."""


def answer(index: Bm25, body: Any, *, topk: int = TOPK) -> dict[str, Any]:
    """The answer to a request's body; without `return_scores` the bare documents, as in the original."""
    if not isinstance(body, dict):
        raise BadRequest("expected a JSON object")
    queries, wanted = body.get("queries"), body.get("topk") or topk
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise BadRequest("queries: expected a list of texts")
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= MOST:
        raise BadRequest(f"topk: expected a whole number from 1 to {MOST}")
    if len(queries) > MOST:
        raise BadRequest(f"queries: expected at most {MOST}")
    shown = _with_score if body.get("return_scores") else _document
    return {"result": [[shown(passage) for passage in index.find(query, wanted)] for query in queries]}


def application(index: Bm25, *, topk: int = TOPK) -> web.Application:
    """The aiohttp application: POST /retrieve."""
    aio = _web()

    def refused(status: int, why: str) -> Any:
        return aio.json_response({"detail": why[:200]}, status=status)

    async def retrieve(request: web.Request) -> Any:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return refused(415, "Content-Encoding: expected the JSON itself, not compressed")
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
            # JSON is UTF-8, whatever charset the request names.
            found = answer(index, json.loads(body), topk=topk)
        except TimeoutError:
            return refused(408, f"expected the whole request within {BODY_S:g} s")
        except (BadRequest, ValueError, RecursionError) as error:
            return refused(422, str(error))
        except (OSError, aio.RequestPayloadError) as error:
            # The client went away, or what it sent is no body.
            return refused(400, f"the body cannot be read ({type(error).__name__})")
        return aio.Response(
            body=json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"),
            content_type="application/json",
        )

    app: web.Application = aio.Application(client_max_size=8 * MEGABYTE)
    app.router.add_post("/retrieve", retrieve)
    return app


def serve(
    corpus: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = TOPK,
    processes: int = 1,
    cache: Path | None = None,
) -> None:
    """Serve until stopped by SIGINT or SIGTERM; the index is built first if there is none.

    Args:
        corpus: .parquet or .jsonl files.
        host: address to listen on.
        port: 1 to 65535.
        topk: passages where a request names no number.
        processes: processes that share the port.
        cache: folder of stored indexes; None: see `open_bm25`.

    Raises:
        RunError: a process ended by itself.
    """
    if processes < 1 or not 0 < port < 65536:
        raise InputError(
            f"processes={processes}, port={port}: expected at least 1 process, and port 1 to 65535"
        )
    _web()
    open_bm25(corpus, cache=cache)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_work, args=(list(corpus), host, port, topk, cache), daemon=True)
        for _ in range(processes)
    ]

    def stop(*_: object) -> None:
        for worker in workers:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = [worker.exitcode for worker in workers if worker.exitcode not in (0, -signal.SIGTERM)]
    if failed:
        raise RunError(
            f"{len(failed)} of {processes} server processes ended with {failed}: is port {port} taken?"
        )


def _work(corpus: list[Path], host: str, port: int, topk: int, cache: Path | None) -> None:
    index = open_bm25(corpus, cache=cache)
    # The first search compiles the selection, or loads it: not while a client waits.
    index.find("warm", 1)
    asyncio.run(_until_signalled(application(index, topk=topk), host, port))


async def _until_signalled(app: web.Application, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = await listening(app, host, port)
    try:
        await stop.wait()
    finally:
        await runner.cleanup()


async def listening(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Start to answer at host:port; `cleanup` of what is returned ends it within about `END_S`."""
    aio = _web()
    # Bodies stay as they were sent: one that is no gzip would fail inside aiohttp, with a traceback.
    runner: web.AppRunner = aio.AppRunner(
        app, access_log=None, logger=_LOG, auto_decompress=False, shutdown_timeout=END_S
    )
    await runner.setup()
    await aio.TCPSite(runner, host, port, reuse_port=True).start()
    return runner


def _web() -> Any:
    try:
        from aiohttp import web
    except ImportError as error:
        raise MissingExtra("aiohttp", "hotpotqa") from error
    return web


def _bad_messages() -> tuple[type[Exception], ...]:
    """What aiohttp would log with a traceback, and is the client's doing: no HTTP, or a lost connection."""
    from aiohttp.http_exceptions import HttpProcessingError

    return HttpProcessingError, OSError


def _document(passage: Passage) -> dict[str, Any]:
    return {"id": passage.doc_id, "contents": join_contents(passage)}


def _with_score(passage: Passage) -> dict[str, Any]:
    return {"document": _document(passage), "score": passage.score}
