"""OpenEnv environments as a benchmark: `--env openenv:http://HOST:PORT`, over the server's own WebSocket.

    fewsteps collect --env openenv:http://127.0.0.1:8000 --tasks seeds:60 ...

A task is a seed that the environment is reset with, and every observation of a replay is compared: an
environment that draws at random in spite of its seed is recorded as `replay_desync`. Where an action is one
text, a turn is that text; else a turn is a call of the tool `act`, or one JSON object. Nothing of OpenEnv is
imported; the messages are those of its EnvClient (openenv-core 0.3).
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from agentloop.environments.seeds import Scale, SeedEpisode, SeedTasks, Which
from agentloop.http import open_session
from agentloop.policies.tool_text import calls_in
from agentloop.types import Environment, EnvironmentFailed, Reply
from occupancy.record.errors import InputError
from occupancy.record.finish import after_reasoning
from occupancy.record.rows import storable
from occupancy.record.specs import Count, Few, Positive

MOST_BYTES = 8 << 20
"""Of one message of the server."""
EXPECTED = "expected a running OpenEnv server, e.g. openenv:http://127.0.0.1:8000"
_OF_EVERY_ACTION = ("metadata",)
"""Fields that OpenEnv gives every action, and no turn fills."""


@dataclass(frozen=True)
class Actions:
    """What a turn may be."""

    text_field: str
    """The one text that an action is; empty where it is more."""
    schema: Mapping[str, Any]

    def of(self, turn: str) -> tuple[dict[str, Any] | None, str]:
        """The action of a turn, or None, and the role of the message that answers it."""
        turn = after_reasoning(turn)
        if self.text_field:
            return {self.text_field: turn.strip()}, "user"
        _, calls = calls_in(turn)
        role = "tool" if calls else "user"
        text = calls[0][1] if calls else turn[turn.find("{") : turn.rfind("}") + 1]
        try:
            action = json.loads(text)
        except (ValueError, RecursionError):
            return None, role
        return (action if isinstance(action, dict) else None), role

    @property
    def told(self) -> str:
        """How to act, in a sentence."""
        if self.text_field:
            return f"Answer each message with your next {self.text_field} alone."
        return f"Act with one JSON object in each answer, of this schema: {json.dumps(self.schema)}"


def read_actions(schema: Any) -> Actions:
    """What a turn may be, from the server's JSON schema of an action."""
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        raise InputError("the server's /schema describes no action: expected a JSON schema with properties")
    own = {name: field for name, field in fields.items() if name not in _OF_EVERY_ACTION}
    name = next(iter(own), "")
    one_text = len(own) == 1 and isinstance(own[name], dict) and own[name].get("type") == "string"
    defined = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    required = schema.get("required")
    required = [f for f in required if isinstance(f, str) and f in own] if isinstance(required, list) else []
    described = {"type": "object", "properties": own, "required": required}
    return Actions(name if one_text else "", described | defined)


class OpenEnv(SeedEpisode):
    """One task over a WebSocket, which is opened when it is needed."""

    def __init__(self, seed: int, server: OpenEnvServer) -> None:
        super().__init__(seed, server.scale, server.system)
        self._server = server
        self._socket: Any = None

    async def reset(self, seed: int) -> Reply:
        """Begin the task anew; its seed is the task's own, and not the episode's."""
        self._rewards = []
        return self._reply(await self._ask("reset", {"seed": self._seed} | self._server.reset), "user")

    async def step(self, text: str) -> Reply:
        """Play one turn; what is no action is answered by what the server says of it."""
        action, role = self._server.actions.of(text)
        if action is None:
            return Reply("No JSON object was found: act with one.", parse_status="no_action", role=role)
        return self._reply(await self._ask("step", action), role)

    async def close(self) -> None:
        """End the connection; what is asked next has a new one."""
        import aiohttp

        socket, self._socket = self._socket, None
        if socket is not None:
            with suppress(ConnectionError, aiohttp.ClientError):
                await socket.send_str('{"type": "close"}')
            await socket.close()

    async def _ask(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._socket is None:
            self._socket = await self._server.connected()
        try:
            return await self._answer(kind, data)
        except BaseException:
            # The answer may still come, and would be taken for the next one.
            await self.close()
            raise

    async def _answer(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        import aiohttp

        try:
            async with asyncio.timeout(self._server.timeout_s):
                await self._socket.send_str(json.dumps({"type": kind, "data": data}))
                given = await self._socket.receive_json()
        except TimeoutError:
            told = f"the server did not answer {kind} in {self._server.timeout_s:g} s"
            raise EnvironmentFailed(told) from None
        except (aiohttp.ClientError, ConnectionError, TypeError, ValueError) as error:
            raise EnvironmentFailed(f"the connection ended at {kind} ({error!r})") from None
        if not isinstance(given, dict) or not isinstance(given.get("data"), dict):
            raise EnvironmentFailed(f"the server answered {kind} with no object with data")
        return given

    def _reply(self, given: Mapping[str, Any], role: str) -> Reply:
        data = given["data"]
        if given.get("type") == "error":
            if data.get("code") == "VALIDATION_ERROR":
                told = json.dumps([{k: e.get(k) for k in ("loc", "msg")} for e in data.get("errors", ())])
                return Reply(f"This is no action: {told}", parse_status="invalid_action", role=role)
            raise EnvironmentFailed(f"the server failed ({data.get('code')}: {data.get('message')})")
        reward = data.get("reward")
        number = reward if isinstance(reward, int | float) else None
        return self._stepped(data.get("observation"), number, bool(data.get("done")), role)


class OpenEnvServer(SeedTasks):
    """The environments of the server at `url`; a task is a seed.

    Args:
        url: http://HOST:PORT.
        workers: tasks that are open at once; the server has a limit of its own.
        T_max: most turns of an episode.
        reward, reward_at_0, reward_at_1: see `Scale`.
        system: the system message; by default what the server says of itself and of its actions.
        reset: JSON object of further arguments of every reset.
        timeout_s: seconds for one answer of the server.
    """

    def __init__(
        self,
        url: str,
        *,
        workers: Few = 2,
        T_max: Count = 50,
        reward: Which = "last",
        reward_at_0: float = 0.0,
        reward_at_1: float = 1.0,
        system: str = "",
        reset: str = "{}",
        timeout_s: Positive = 60.0,
    ) -> None:
        try:
            self.reset = json.loads(reset)
            good = urlsplit(url).scheme in ("http", "https") and isinstance(self.reset, dict)
        except (ValueError, RecursionError):
            good = False
        if not good:
            raise InputError(f"openenv:{url} reset={reset}: expected http://HOST:PORT, and a JSON object")
        self._url, self.timeout_s = url.rstrip("/"), timeout_s
        super().__init__(workers, T_max, Scale(reward, reward_at_0, reward_at_1))
        self.actions, told = read_actions(self._get("schema").get("action")), self._get("metadata")
        self.name = f"openenv {told.get('name', '')}".strip()
        told_version = f"{told.get('version', '')} {self.scale.told(system)} reset={reset}"
        self.version = storable(f"{self.name} {told_version}")
        self.system = system or f"{told.get('description', '')}\n\n{self.actions.told}".strip()
        tool = {"name": "act", "description": "Act in the environment.", "parameters": self.actions.schema}
        self.tools = () if self.actions.text_field else ({"type": "function", "function": tool},)
        self._session: Any = None

    @asynccontextmanager
    async def opened(self, seed: int) -> AsyncIterator[Environment]:
        """A connection of its own for one task."""
        task = OpenEnv(seed, self)
        try:
            yield task
        finally:
            await task.close()

    async def connected(self) -> Any:
        """A new WebSocket; EnvironmentFailed where the server takes none."""
        import aiohttp

        if self._session is None:
            self._session = open_session("agents")
        address = f"ws{self._url.removeprefix('http')}/ws"
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._session.ws_connect(address, max_msg_size=MOST_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise EnvironmentFailed(f"{address} cannot be reached ({error!r})") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _get(self, name: str) -> dict[str, Any]:
        url = f"{self._url}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=self.timeout_s) as response:
                given = json.loads(response.read(MOST_BYTES))
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise InputError(f"{url} gives no JSON ({error}): {EXPECTED}") from error
        if not isinstance(given, dict):
            raise InputError(f"{url} gives no JSON object: {EXPECTED}")
        return given
