"""Search-R1's interface over real sockets: our server, our client, and servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from hotpotqa_world import PASSAGES, world
from waiting import HANG_S, held_port, until_answered

import agentloop.listening as listening_module
from agentloop.environments.hotpotqa.retrieval import client as client_module
from agentloop.environments.hotpotqa.retrieval.client import Limits, read_result, remote
from agentloop.environments.hotpotqa.retrieval.index import Bm25, open_bm25
from agentloop.environments.hotpotqa.retrieval.passages import join_contents
from agentloop.environments.hotpotqa.retrieval.retriever import RetrieverFailed
from agentloop.environments.hotpotqa.retrieval.server import answer, application
from agentloop.listening import listening
from agentloop.retries import Retries
from agentloop.types import Status
from occupancy.record.errors import InputError

Handler = Callable[[Any], Awaitable[web.StreamResponse]]
FAST = Limits(retries=Retries(3, first_s=0.001), timeout_s=HANG_S)
HIT = {"document": {"id": "7", "contents": '"A town"\nIt stands.'}, "score": 1.5}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Bm25:
    folder = tmp_path_factory.mktemp("http")
    file = folder / "wiki.jsonl"
    file.write_text(
        "".join(json.dumps({"id": p.doc_id, "contents": join_contents(p)}) + "\n" for p in PASSAGES)
    )
    return open_bm25([file], cache=folder)


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@asynccontextmanager
async def asked(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/retrieve", handler)
    async with serving(app) as base:
        yield base


def test_the_client_gets_what_the_index_finds(index: Bm25) -> None:
    async def run() -> None:
        async with serving(application(index)) as base:
            retriever = remote(base)
            for k in (1, 3):
                assert await retriever.search("the town Aldor", k) == index.find("the town Aldor", k)
            assert await retriever.search("xylophone", 3) == []
            await retriever.close()

    asyncio.run(run())


def test_searches_at_the_same_time_are_one_request() -> None:
    bodies: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.Response:
        bodies.append(await request.json())
        hits = [[HIT | {"score": float(query)}] for query in bodies[-1]["queries"]]
        return web.json_response({"result": hits})

    async def run() -> None:
        async with asked(handler) as base:
            retriever = remote(f"{base}/retrieve", limits=Limits(batch=4))
            found = await asyncio.gather(*(retriever.search(str(i), 2 + i // 10) for i in range(12)))
            assert [hits[0].score for hits in found] == list(range(12)), "each gets its own answer"
            await retriever.close()

    asyncio.run(run())
    assert all(body["return_scores"] is True for body in bodies)
    sizes = sorted((body["topk"], len(body["queries"])) for body in bodies)
    assert sum(size for _, size in sizes) == 12
    assert max(size for _, size in sizes) == 4
    assert len(sizes) <= 5, "two numbers of passages: not all in one request, and not one each"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_again(status: int) -> None:
    calls: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        calls.append(1)
        return web.json_response({"result": [[HIT]]}, status=status if len(calls) < 3 else 200)

    async def run() -> None:
        async with asked(handler) as base:
            retriever = remote(base, limits=FAST)
            (hit,) = await retriever.search("q", 3)
            assert (hit.doc_id, hit.title, hit.text, hit.score) == ("7", "A town", "It stands.", 1.5)
            await retriever.close()

    asyncio.run(run())
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("response", "calls", "said"),
    [
        (lambda: web.Response(status=500), 4, "status 500, 4 times"),
        (lambda: web.Response(status=404, text="no such\npage"), 1, r"status 404 \(no such page\)"),
        (lambda: web.Response(text="<html>"), 1, "no JSON"),
        (lambda: web.json_response({"result": []}), 1, "result=0: expected 1"),
        (lambda: web.json_response({"detail": "?"}), 1, "result=NoneType"),
        (lambda: web.json_response({"result": [[{"document": {}}]]}), 1, "contents"),
        (lambda: web.json_response({"result": [[{"document": {"contents": 7}}]]}), 1, "no such documents"),
        (lambda: web.json_response({"result": [[HIT | {"score": float("nan")}]]}), 1, "score nan"),
        (lambda: web.json_response({"result": [[{"contents": "\ud835"}]]}), 1, "no such documents"),
        (lambda: web.Response(body=b"[" * 40_000), 1, "no JSON"),
        (lambda: web.Response(body=b"\xff"), 1, "no JSON"),
        (lambda: web.Response(body=b" " * 100_000), 1, "more than 50,000 bytes"),
        (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), 1, "status 302"),
        (lambda: web.Response(headers={"X": "a" * 100_000}), 1, "no HTTP response"),
    ],
)
def test_a_failure_is_said_once_and_bounded(
    response: Callable[[], web.Response], calls: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MOST_BYTES", 50_000)
    seen: list[int] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(1)
        return response()

    async def run() -> None:
        async with asked(handler) as base:
            retriever = remote(base, limits=FAST)
            with pytest.raises(RetrieverFailed, match=said):
                await retriever.search("q", 3)
            await retriever.close()

    asyncio.run(run())
    assert len(seen) == calls


def test_no_server_and_a_slow_one_are_failures() -> None:
    async def handler(request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response()

    async def run() -> None:
        async with asked(handler) as base:
            slow = remote(base, limits=Limits(retries=Retries(1, first_s=0.001), timeout_s=0.05))
            with pytest.raises(RetrieverFailed, match=r"no answer in 0\.05 s, 2 times"):
                await slow.search("q", 3)
            await slow.close()
        gone = remote(base, limits=FAST)
        with pytest.raises(RetrieverFailed, match="the connection failed"):
            await gone.search("q", 3)
        await gone.close()

    asyncio.run(run())


def test_closing_fails_what_waits_and_what_is_under_way() -> None:
    async def run() -> None:
        arrived, never = asyncio.Event(), asyncio.Event()

        async def handler(request: web.Request) -> web.Response:
            arrived.set()
            await never.wait()
            return web.Response()

        async with asked(handler) as base:
            for linger_s in (0.0, 3600.0):
                retriever = remote(base, limits=Limits(linger_s=linger_s))
                search = asyncio.ensure_future(retriever.search("q", 3))
                await (arrived.wait() if linger_s == 0 else asyncio.sleep(0))
                await retriever.close()
                with pytest.raises(RetrieverFailed, match="closed"):
                    await search

    asyncio.run(run())


def test_a_lost_server_ends_episodes_as_retriever_failed() -> None:
    from test_hotpotqa_environment import episode

    made = world(retriever=remote("http://127.0.0.1:9", limits=FAST))
    played = episode(["<search>Aldor</search>"], made=made)
    assert (played.status, played.reward) == (Status.RETRIEVER_FAILED, None)


def test_other_shapes_of_the_answer_are_read() -> None:
    bare = {"result": [[{"id": 3, "contents": "T\nx"}], []]}
    (first,), none = read_result(bare, 2)
    assert (first.doc_id, first.title, first.score, none) == ("3", "T", None, [])
    ((google,),) = read_result({"result": [[{"document": {"contents": '"t"\nsnippet'}}]]}, 1)
    assert (google.doc_id, google.title, google.score) == ("", "t", None)


def test_the_server_answers_as_search_r1s(index: Bm25) -> None:
    hits = answer(index, {"queries": ["Aldor town", "!"], "topk": 2, "return_scores": True})["result"]
    assert [len(found) for found in hits] == [2, 0]
    assert hits[0][0]["document"] == {
        "id": "0",
        "contents": '"Aldor"\nAldor is a town of the north. It stands on the river Ystra.',
    }
    assert isinstance(hits[0][0]["score"], float)
    bare = answer(index, {"queries": ["Aldor town"], "topk": 2})["result"]
    assert bare == [[hit["document"] for hit in hits[0]]], "without scores the documents stand bare"
    assert answer(index, {"queries": []}) == {"result": []}, "Search-R1 asks with no query at all"
    for topk in (None, 0):
        assert len(answer(index, {"queries": ["town river"], "topk": topk})["result"][0]) == 3


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"queries": "q"},
        {"queries": [1]},
        {"queries": ["q"], "topk": -1},
        {"queries": ["q"], "topk": "3"},
        {"queries": ["q"], "topk": True},
        {"queries": ["q"], "topk": 10**9},
        {"queries": ["q"] * 1001},
    ],
)
def test_a_bad_request_is_refused(index: Bm25, body: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        answer(index, body)


def test_the_server_survives_bodies_that_are_no_json(index: Bm25) -> None:
    async def run() -> None:
        async with serving(application(index)) as base, ClientSession() as session:
            for body in (b"", b"\xff", b"[" * 100_000, b'{"queries": 1}'):
                async with session.post(f"{base}/retrieve", data=body) as response:
                    assert response.status == 422
                    assert "detail" in await response.json()
            async with session.post(f"{base}/retrieve", json={"queries": ["Aldor"]}) as response:
                assert response.status == 200

    asyncio.run(run())


HEAD = b"POST /retrieve HTTP/1.1\r\nHost: x\r\n"


def test_what_clients_do_wrong_is_theirs_and_leaves_nothing_in_the_log(
    index: Bm25, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown charsets, bodies that are no gzip, aborted uploads, what is no HTTP, and slow clients."""
    query = b'{"queries": ["Aldor"]}'
    sent = [
        (b"Content-Type: application/json; charset=nonsense\r\nContent-Length: 22\r\n\r\n" + query, b" 200 "),
        (b"Content-Encoding: gzip\r\nContent-Length: 22\r\n\r\n" + query, b" 415 "),
        (b"Content-Encoding: br\r\nContent-Length: 22\r\n\r\n" + query, b" 415 "),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
        (b"Content-Length: -5\r\n\r\n", b" 400 "),
        (b"Content-Length: 1000\r\n\r\n{", b" 408 "),
    ]

    async def run() -> None:
        runner, port = await listening(application(index), "127.0.0.1", 0)
        for body, status in sent:
            monkeypatch.setattr(listening_module, "BODY_S", 0.5 if status == b" 408 " else HANG_S)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + body)
            assert status in await reader.readline(), body
            writer.close()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
        monkeypatch.setattr(listening_module, "BODY_S", 10 * HANG_S)  # the end waits for no slow client
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
        for _, writer in slow:
            writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
        await asyncio.sleep(0.2)
        async with asyncio.timeout(HANG_S):
            await runner.cleanup()
        for _, writer in slow:
            writer.close()

    with caplog.at_level("INFO"):
        asyncio.run(run())
    assert not [record for record in caplog.records if record.name != "asyncio"]


@pytest.mark.parametrize("given", [{"batch": 0}, {"timeout_s": 0}, {"linger_s": -1}])
def test_limits_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        Limits(**given)


def test_the_server_refuses_a_port_that_is_none(tmp_path: Path) -> None:
    from agentloop.environments.hotpotqa.retrieval.server import serve

    with pytest.raises(InputError, match="port=0"):
        serve([tmp_path / "x.jsonl"], port=0)


def test_a_server_that_is_stopped_while_it_starts_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentloop.environments.hotpotqa.retrieval import server

    happened: list[str] = []

    class Process:
        exitcode = 0

        def __init__(self, **given: Any) -> None:
            pass

        def start(self) -> None:
            happened.append("start")
            os.kill(os.getpid(), signal.SIGTERM)

        def terminate(self) -> None:
            happened.append("terminate")

        def join(self) -> None:
            happened.append("join")

    monkeypatch.setattr(server, "open_bm25", lambda *given, **more: None)
    monkeypatch.setattr(server.multiprocessing, "get_context", lambda how: SimpleNamespace(Process=Process))
    before = signal.getsignal(signal.SIGTERM)
    try:
        server.serve([tmp_path / "x.jsonl"], processes=3)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert happened == ["start", "terminate", "join"]


def test_two_processes_serve_one_port_and_end_when_told(tmp_path: Path) -> None:
    file = tmp_path / "wiki.jsonl"
    file.write_text(
        "".join(json.dumps({"id": p.doc_id, "contents": join_contents(p)}) + "\n" for p in PASSAGES)
    )
    command = [sys.executable, "-m", "agentloop.environments.hotpotqa", "serve", "--corpus", str(file)]

    async def run(address: str) -> None:
        retriever = remote(address, limits=FAST)
        found = await asyncio.gather(*(retriever.search("the town Aldor", k) for k in (1, 2, 3, 4)))
        assert [len(passages) for passages in found] == [1, 2, 3, 4]
        await retriever.close()

    with held_port() as port:
        listens = ["--port", str(port), "--cache", str(tmp_path), "--processes", "2"]
        server = subprocess.Popen([*command, *listens])
        try:
            until_answered(f"http://127.0.0.1:{port}/retrieve", server)
            asyncio.run(run(f"http://127.0.0.1:{port}"))
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=HANG_S) == 0
