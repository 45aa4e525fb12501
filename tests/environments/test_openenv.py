"""OpenEnv servers as environments, against a server that speaks the messages of openenv-core 0.3."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from aiohttp import web
from toy_runs import rows
from toy_world import Corridor
from waiting import HANG_S

from agentloop.environments.openenv import OpenEnv, read_actions
from agentloop.environments.seeds import shown
from agentloop.policies.by_name import open_environments, takes
from agentloop.run.collect import Settings, Setup, collect
from agentloop.types import Answer, Ask, OffersTools, Reply, Usage
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset
from occupancy.runs import Run

TEXT = {
    "properties": {"metadata": {"type": "object"}, "move": {"type": "string"}},
    "required": ["move"],
}
OBJECT = {"properties": {"move": {"type": "string"}, "hard": {"type": "boolean"}}, "required": ["move"]}

OK = "HTTP/1.1 200 OK\r\n"


class Server:
    """Corridors of 2 to 6 steps by seed; `fault` is what goes wrong."""

    def __init__(self, schema: dict[str, Any] = TEXT, fault: str = "") -> None:
        self.schema, self.fault, self.resets = schema, fault, 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/schema", self._json({"action": self.schema, "observation": {}, "state": {}}))
        told = {"name": "corridors", "description": "Reach the end.", "version": "2"}
        app.router.add_get("/metadata", self._json(told))
        app.router.add_get("/ws", self._socket)
        return app

    def _json(self, given: Any) -> Any:
        async def get(request: web.Request) -> web.Response:
            return web.Response(text="<html>") if self.fault == "html" else web.json_response(given)

        return get

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        world: Corridor | None = None
        async for message in socket:
            asked = json.loads(message.data)
            if asked["type"] == "reset":
                self.resets += 1
                drift = self.resets if self.fault == "random" else 0
                world = Corridor(2 + (asked["data"]["seed"] + drift) % 5)
                await socket.send_json(self._told(await world.reset(0)))
            elif asked["type"] == "close" or self.fault == "broken":
                break
            elif self.fault in ("silent", "late"):
                await asyncio.sleep(30 if self.fault == "silent" else 0.1)
                if self.fault == "late" and not socket.closed:
                    await socket.send_json(self._told(Reply("late")))
            elif self.fault == "crash":
                await socket.send_json(
                    {"type": "error", "data": {"code": "EXECUTION_ERROR", "message": "oh"}}
                )
            elif "move" not in asked["data"]:
                missing = {"code": "VALIDATION_ERROR", "errors": [{"loc": ["move"], "msg": "Field required"}]}
                await socket.send_json({"type": "error", "data": missing})
            else:
                assert world is not None
                await socket.send_json(self._told(await world.step(asked["data"]["move"])))
        return socket

    def _told(self, reply: Reply) -> dict[str, Any]:
        reward = (2.0 if self.fault == "large" else 1.0) if reply.done else 0.0
        return {
            "type": "observation",
            "data": {"observation": {"text": reply.observation}, "reward": reward, "done": reply.done},
        }


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """The server in a thread of its own: opening an environment waits for it."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def start() -> web.AppRunner:
        runner = web.AppRunner(server.app(), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        return runner

    def run() -> None:
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait(HANG_S)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(HANG_S)


def reader(*, errs: float = 0.0, form: str = "{}") -> Any:
    async def play(ask: Ask) -> Answer:
        import random

        right = "climb" if "in a ditch" in ask.context[-1].content else "forward"
        move = "stumble" if random.Random(ask.seed).random() < errs else right
        return Answer(form.replace("{}", move), Usage(4, "toy"))

    return play


def collected(folder: Path, server: Server, *, form: str = "{}", **given: Any) -> list[dict[str, Any]]:
    with serving(server) as url:
        worlds = open_environments(f"openenv:{url}", workers=3, T_max="12", timeout_s=str(HANG_S), **given)
        recipe = preset("op-short", K=2, n=1, T_max=12)
        student, teacher = reader(errs=0.4, form=form), reader(form=form)
        settings = Settings(recipe, "student", "teacher", "seeds:2-7", seed=3)

        async def run() -> Run:
            try:
                return await collect(folder, Setup(settings, worlds, student, teacher))
            finally:
                await worlds.close()

        return rows(asyncio.run(run()), "episodes")


@pytest.mark.parametrize(
    ("schema", "form"),
    [
        (TEXT, "{}"),
        (OBJECT, 'I go on. {"move": "{}"}'),
        (OBJECT, '<tool_call>\n{"name": "act", "arguments": {"move": "{}"}}\n</tool_call>'),
    ],
)
def test_a_server_is_played_and_every_prefix_replays(tmp_path: Path, schema: Any, form: str) -> None:
    episodes = collected(tmp_path, Server(schema), form=form)
    assert {row["task_id"] for row in episodes} == {f"seeds/{n}" for n in range(2, 7)}
    assert {row["status"] for row in episodes} <= {"finished", "horizon", "capped"}
    assert any(row["kind"] == "continuation" for row in episodes)
    assert any(row["R"] == 1 for row in episodes)


def test_an_environment_that_draws_at_random_is_a_desync(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the replay failed in all"):
        collected(tmp_path, Server(fault="random"))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("broken", "the connection ended"),
        ("crash", "EXECUTION_ERROR: oh"),
        ("silent", "did not answer step in 0.3 s"),
        ("large", "expected R in"),
    ],
)
def test_what_a_server_does_wrong_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, why: str
) -> None:
    if fault == "silent":
        step = OpenEnv.step

        async def impatient(self: OpenEnv, text: str) -> Reply:
            self._server = copy(self._server)
            self._server.timeout_s = 0.3
            return await step(self, text)

        monkeypatch.setattr(OpenEnv, "step", impatient)
    try:
        errors = " ".join(row["error"] for row in collected(tmp_path, Server(fault=fault)))
    except Exception as error:
        errors = str(error)
    assert why in errors


def test_a_reward_may_have_another_scale(tmp_path: Path) -> None:
    episodes = collected(tmp_path, Server(fault="large"), reward_at_1="2", reward="max")
    assert any(row["R"] == 1 for row in episodes)


def test_what_cannot_be_opened_is_refused() -> None:
    with pytest.raises(InputError, match="expected a running OpenEnv server"):
        open_environments("openenv:http://127.0.0.1:1")
    for url, reset in (("ftp://x", "{}"), ("http://x", "[]"), ("http://x", "{"), ("http://x", "[" * 10**5)):
        with pytest.raises(InputError, match="http://HOST:PORT"):
            open_environments(f"openenv:{url}", reset=reset)
    with pytest.raises(InputError, match="has no setting 'size'"):
        open_environments("openenv:http://127.0.0.1:1", size="3")
    with serving(Server(fault="html")) as url, pytest.raises(InputError, match="gives no JSON"):
        open_environments(f"openenv:{url}")
    with pytest.raises(InputError, match="no action"):
        read_actions({"type": "string"})
    for required in (5, None, [{}]):
        assert read_actions(OBJECT | {"required": required}).schema["required"] == []
    for url in ("http://127.0.0.1:80a", "http://a b", "http://x@y:z"):
        with pytest.raises(InputError, match=f"{url}/schema gives no JSON"):
            open_environments(f"openenv:{url}")


@pytest.mark.parametrize(
    "answer", ["garbage\r\n\r\n", f"{OK}Transfer-Encoding: chunked\r\n\r\nzz", OK + "a: b\r\n" * 200]
)
def test_a_server_that_speaks_no_http_is_refused(answer: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer.encode())

        thread = threading.Thread(target=once)
        thread.start()
        with pytest.raises(InputError, match="gives no JSON"):
            open_environments(f"openenv:http://127.0.0.1:{server.getsockname()[1]}")
        thread.join(HANG_S)
    assert takes("openenv:http://x", "workers")


def test_turns_and_observations() -> None:
    assert read_actions(TEXT).of(" forward\n") == ({"move": "forward"}, "user")
    assert read_actions(TEXT).of("<think>Back?</think>\n forward\n") == ({"move": "forward"}, "user")
    assert read_actions(OBJECT).of('<think>{"move": ..}</think>{"move": "on"}') == ({"move": "on"}, "user")
    assert read_actions(OBJECT).of("no object") == (None, "user")
    assert read_actions(OBJECT).of('{"move": 1} and }') == (None, "user")
    assert shown({"text": "hello"}) == "hello"
    assert shown({"a": "é", "b": 2}) == '{"a": "é", "b": 2}'
    with serving(Server(OBJECT)) as url:
        worlds = open_environments(f"openenv:{url}")
        assert isinstance(worlds, OffersTools)
        assert worlds.tools[0]["function"]["parameters"]["required"] == ["move"]
        with pytest.raises(InputError, match="seeds:N"):
            worlds.tasks("seeds")


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(tmp_path: Path) -> None:
    with serving(Server(fault="late")) as url:
        worlds = open_environments(f"openenv:{url}")
        (task,) = worlds.tasks("seeds:1")

        async def play() -> tuple[Reply, Reply]:
            async with worlds.open(task) as env:
                first = await env.reset(0)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await env.step("forward")
                again = await env.reset(0)
            await worlds.close()
            return first, again

        first, again = asyncio.run(play())
    assert first == again
