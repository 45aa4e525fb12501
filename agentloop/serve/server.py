"""The HTTP side of `fewsteps serve`: an OpenAI-compatible address whose every call belongs to an episode.

    POST /v1/chat/completions, /v1/responses       key: X-Session-ID, or at the end of the API key
    POST /episodes/KEY/v1/chat/completions, ..     the same with the key in the address
    POST /episodes/KEY/reward                      {"reward": 0 to 1}, or {"error": "why it has none"}
    GET  /episodes/KEY, /status, /v1/models        what is known of an episode, of the run; a model's name
    POST /close                                    no further episode comes: units end with those they have

What a harness sends as Authorization is compared with the access key, and neither kept nor passed on.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from agentloop.listening import MOST_BYTES, Unreadable, body_of, listening
from agentloop.serve import calls, responses
from agentloop.serve.calls import Failed, Refused, task_of
from agentloop.serve.desk import CLOSED, Desk
from agentloop.serve.settings import Serving
from agentloop.types import Reply
from occupancy.record.errors import RunError, imported
from occupancy.record.rows import storable

if TYPE_CHECKING:
    from aiohttp import web

    Handler = Callable[[web.Request], Awaitable[Any]]

Say = Callable[[str], None]
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_TASK = re.compile(r"[\w./:@+=,-]{1,200}")
_IN_API_KEY = "/episode/"
_MODELS = {
    "object": "list",
    "data": [{"id": "fewsteps", "object": "model", "created": 0, "owned_by": "fewsteps"}],
}


def application(desk: Desk, serving: Serving, *, say: Say) -> web.Application:
    """The aiohttp application; `say` is told once of each setting that a harness asks for in vain."""
    aio = imported("aiohttp.web", "agents")

    @cache
    def asked_in_vain(name: str) -> None:
        say(f"the harness asks for a {name}: turns are sampled as --student and --teacher say")

    async def refusals(request: web.Request, handler: Handler) -> Any:
        """Around every handler: who is not admitted, and what is refused, gets an error as JSON."""
        try:
            _admit(request, serving.access_key)
            return await handler(request)
        except Refused as refused:
            status, code, why = refused.status, refused.code, str(refused)
        except Unreadable as error:
            status, code, why = error.status, "unreadable", str(error)
        except RunError as error:
            status, code, why = 503, "failed", str(error)
        headers = {"Retry-After": "5"} if status in (429, 503) else {}
        body = {"message": " ".join(why.split()), "type": "fewsteps", "code": code}
        return aio.json_response({"error": body}, status=status, headers=headers)

    async def reward(request: web.Request) -> Any:
        used = desk.end_of(_key(request), _read_end(await body_of(request)))
        await asyncio.to_thread(desk.journal.sync)
        return aio.json_response({"used": used})

    async def episode(request: web.Request) -> Any:
        key = _key(request)
        if key in desk.sessions:
            return aio.json_response({"state": "open"})
        if key in desk.ended:
            return aio.json_response({"state": "ended", "code": desk.ended[key].code})
        raise Refused(404, "unknown_episode", f"episode {key[:80]!r} is not known: it has made no call")

    async def models(request: web.Request) -> Any:
        return aio.json_response(_MODELS)

    async def status(request: web.Request) -> Any:
        return aio.json_response(desk.status())

    async def close(request: web.Request) -> Any:
        desk.refuse_further(CLOSED)
        return aio.json_response(desk.status())

    app: web.Application = aio.Application(client_max_size=MOST_BYTES, middlewares=[aio.middleware(refusals)])
    for start in ("", "/v1", "/episodes/{key}", "/episodes/{key}/v1"):
        app.router.add_post(f"{start}/chat/completions", _turns(calls, desk, asked_in_vain))
        app.router.add_post(f"{start}/responses", _turns(responses, desk, asked_in_vain))
        app.router.add_get(f"{start}/models", models)
    app.router.add_post("/episodes/{key}/reward", reward)
    app.router.add_get("/episodes/{key}", episode)
    app.router.add_get("/status", status)
    app.router.add_post("/close", close)
    app.router.add_route("*", "/{rest:.*}", _unknown)
    return app


@asynccontextmanager
async def answering(desk: Desk, serving: Serving, *, say: Say = lambda line: None) -> AsyncIterator[str]:
    """Answer the calls of a desk at the address that it gives; `say` as in `application`."""
    runner, port = await listening(application(desk, serving, say=say), serving.host, serving.port)
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def _turns(form: Any, desk: Desk, asked_in_vain: Say) -> Handler:
    """The handler of calls in a form, which is a module: `calls` or `responses`."""
    aio = imported("aiohttp.web", "agents")

    async def turn(request: web.Request) -> Any:
        key = _key(request)
        call = form.read_call(await body_of(request))
        for name in call.sampling:
            asked_in_vain(name)
        task_id = request.headers.get("X-Task-ID") or task_of(call.messages)
        if not _TASK.fullmatch(task_id):
            raise Refused(400, "bad_request", "X-Task-ID: expected 1 to 200 letters, digits or ./:@+=,-_")
        transport = request.transport
        given = await desk.turn(key, task_id, call, lambda: transport is None or transport.is_closing())
        name = f"{blake2b(key.encode(), digest_size=8).hexdigest()}-{given.t}"
        whole = form.completion(given.text, given.usage, call, name=name, t=given.t)
        if call.stream:
            return aio.Response(body=form.streamed(whole, call), content_type="text/event-stream")
        return aio.json_response(whole)

    return turn


async def _unknown(request: web.Request) -> Any:
    raise Refused(
        404,
        "unknown_address",
        f"{request.method} {request.path[:80]}: expected POST /v1/chat/completions, "
        f"/v1/responses or /episodes/KEY/reward; see docs/own_harness.md",
    )


def _bearer(request: web.Request) -> tuple[str, str]:
    """Access key and episode key of an API key SECRET/episode/KEY."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    secret, _, key = given.strip().partition(_IN_API_KEY)
    return (secret, key) if scheme.lower() == "bearer" else ("", "")


def _admit(request: web.Request, access_key: str) -> None:
    secret, _ = _bearer(request)
    known = hmac.compare_digest(secret.encode("utf-8", "replace"), access_key.encode("utf-8", "replace"))
    if access_key and not known:
        raise Refused(
            401, "wrong_key", "the API key is not this server's: expected the one that --key-env names"
        )


def _key(request: web.Request) -> str:
    named = {
        request.match_info.get("key", ""),
        request.headers.get("X-Session-ID", ""),
        _bearer(request)[1],
    } - {""}
    if not named:
        raise Refused(
            400,
            "no_episode",
            "the call names no episode: give its key as the header X-Session-ID, in the address "
            "(/episodes/KEY/v1), or at the end of the API key (ACCESS_KEY/episode/KEY)",
        )
    if len(named) > 1:
        raise Refused(400, "bad_request", "the call names two episodes: give one key alone")
    key: str = named.pop()
    if not _KEY.fullmatch(key):
        raise Refused(400, "bad_request", "the episode's key: expected 1 to 200 visible ASCII characters")
    return key


def _read_end(body: bytes) -> Reply | Failed:
    try:
        given = json.loads(body)
        if isinstance(given.get("error"), str) and given["error"].strip():
            return Failed(storable(" ".join(given["error"].split())[:500]))
        reward, observation = given["reward"], given.get("observation", "")
        good = isinstance(reward, int | float) and not isinstance(reward, bool) and 0 <= reward <= 1
        if good and isinstance(observation, str):
            return Reply(storable(observation), done=True, reward=float(reward))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise Refused(
        422,
        "bad_reward",
        'expected {"reward": a number from 0 to 1, "observation": an optional text}, or {"error": why}',
    )
