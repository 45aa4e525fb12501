"""A server with Search-R1's retrieval interface over the embedded index.

    python -m agentloop.environments.hotpotqa serve --corpus wiki-18.jsonl --port 8000 --processes 2

Several processes share the port and the memory-mapped index; the system distributes connections among them.
There is no authentication: it listens on this machine alone unless `host` names another address. A request
that cannot be read gets a status from 400 to 499 and leaves nothing in the log.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentloop.listening import MOST_BYTES, Unreadable, body_of, listening, stop_on_signals
from occupancy.record.errors import RunError, imported
from occupancy.record.specs import Few, Range, checked

from .index import Bm25, open_bm25
from .passages import Passage, join_contents

if TYPE_CHECKING:
    from aiohttp import web

Port = Annotated[int, Range(1, 65535)]
TOPK = 3
MOST = 1000
"""Queries in one request, and passages for one query."""


def answer(index: Bm25, body: Any, *, topk: int = TOPK) -> dict[str, Any]:
    """The answer to a request's body; without `return_scores` the bare documents, as in the original.

    ValueError for a body that asks for nothing that can be answered.
    """
    if not isinstance(body, dict):
        raise ValueError("expected a JSON object")
    queries, wanted = body.get("queries"), body.get("topk") or topk
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise ValueError("queries: expected a list of texts")
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= MOST:
        raise ValueError(f"topk: expected a whole number from 1 to {MOST}")
    if len(queries) > MOST:
        raise ValueError(f"queries: expected at most {MOST}")
    shown = _with_score if body.get("return_scores") else _document
    return {"result": [[shown(passage) for passage in index.find(query, wanted)] for query in queries]}


def application(index: Bm25, *, topk: int = TOPK) -> web.Application:
    """The aiohttp application: POST /retrieve."""
    aio = imported("aiohttp.web", "hotpotqa")

    def refused(status: int, why: str) -> Any:
        return aio.json_response({"detail": why[:200]}, status=status)

    async def retrieve(request: web.Request) -> Any:
        try:
            # JSON is UTF-8, whatever charset the request names.
            found = answer(index, json.loads(await body_of(request)), topk=topk)
        except Unreadable as error:
            return refused(error.status, str(error))
        except (ValueError, RecursionError) as error:
            return refused(422, str(error))
        return aio.Response(
            body=json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"),
            content_type="application/json",
        )

    app: web.Application = aio.Application(client_max_size=MOST_BYTES)
    app.router.add_post("/retrieve", retrieve)
    return app


@checked
def serve(
    corpus: Sequence[Path],
    *,
    host: str = "127.0.0.1",
    port: Port = 8000,
    topk: Few = TOPK,
    processes: Few = 1,
    cache: Path | None = None,
) -> None:
    """Serve until stopped by SIGINT or SIGTERM; the index is built first if there is none.

    `processes` share the port; `topk` is for requests that name no number of passages.

    Raises:
        RunError: a process ended by itself.
    """
    imported("aiohttp.web", "hotpotqa")
    open_bm25(corpus, cache=cache)
    context = multiprocessing.get_context("spawn")
    started: list[Any] = []
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        for worker in started:
            worker.terminate()

    signal.signal(signal.SIGTERM, stop)
    while len(started) < processes and not stopped:
        worker = context.Process(target=_work, args=(list(corpus), host, port, topk, cache), daemon=True)
        worker.start()
        started.append(worker)
    if stopped:  # perhaps while one was being started
        stop()
    for worker in started:
        worker.join()
    failed = [worker.exitcode for worker in started if worker.exitcode not in (0, -signal.SIGTERM)]
    if failed:
        raise RunError(f"{len(failed)} of {processes} processes ended with {failed}: is port {port} taken?")


def _work(corpus: list[Path], host: str, port: int, topk: int, cache: Path | None) -> None:
    index = open_bm25(corpus, cache=cache)
    # The first search compiles the selection, or loads it: not while a client waits.
    index.find("warm", 1)
    asyncio.run(_until_signalled(application(index, topk=topk), host, port))


async def _until_signalled(app: web.Application, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    runner, _ = await listening(app, host, port, share_port=True)
    try:
        await stop.wait()
    finally:
        await runner.cleanup()


def _document(passage: Passage) -> dict[str, Any]:
    return {"id": passage.doc_id, "contents": join_contents(passage)}


def _with_score(passage: Passage) -> dict[str, Any]:
    return {"document": _document(passage), "score": passage.score}
