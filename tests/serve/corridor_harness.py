"""A harness of somebody else: it plays corridors through a chat-completions address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from toy_world import Corridor
from waiting import HANG_S
from yarl import URL

from agentloop.run.settings import Settings, SpendingLimits
from agentloop.run.types import Setup
from agentloop.serve.desk import Desk, Harness
from agentloop.serve.run import serve
from agentloop.serve.server import answering
from agentloop.serve.settings import Serving
from agentloop.types import Answer, Ask, Traits, Usage
from occupancy.record.recipe import Recipe, preset


def right(text: str) -> str:
    return "climb" if "in a ditch" in text else "forward"


class Reader:
    """A policy that reads its context alone; `errs` of its turns stumble, by their seed."""

    traits = Traits(most_output=30)

    def __init__(self, *, errs: float = 0.0, tokens: int = 7) -> None:
        self.errs, self.tokens, self.calls = errs, tokens, 0

    async def __call__(self, ask: Ask) -> Answer:
        import random

        self.calls += 1
        wrong = random.Random(ask.seed).random() < self.errs
        return Answer(
            "stumble" if wrong else right(ask.context[-1].content), Usage(self.tokens, "toy", prompt=5)
        )


@dataclass
class Client:
    """Calls as a harness makes them."""

    address: str
    session: aiohttp.ClientSession
    headers: dict[str, str] = field(default_factory=dict)
    desk: Any = None

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        sent = body if isinstance(body, bytes) else None
        async with self.session.post(
            URL(self.address + path, encoded=True),
            data=sent,
            json=None if sent is not None else body,
            headers={**self.headers, **headers},
        ) as response:
            return response.status, await response.json()

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(
            URL(self.address + path, encoded=True), headers={**self.headers, **headers}
        ) as response:
            return response.status, await response.json()

    async def chat(self, key: str, messages: list[dict[str, Any]], task: str = "", **more: Any) -> Any:
        """The turn that answers; a refusal's status and error."""
        headers = {"X-Session-ID": key} | ({"X-Task-ID": task} if task else {})
        status, got = await self.post(
            "/v1/chat/completions", {"model": "any", "messages": messages, **more}, **headers
        )
        return got["choices"][0]["message"]["content"] if status == 200 else (status, got["error"])

    async def play(self, key: str, length: int, task: str = "", *, most: int = 13) -> str:
        """One episode of a corridor with its reward; how it ended."""
        world = Corridor(length)
        first = await world.reset(0)
        messages = [{"role": m.role, "content": m.content} for m in world.prompt(first)]
        for _ in range(most):
            said = await self.chat(key, messages, task)
            if isinstance(said, tuple):
                return str(said[1]["code"])
            reply = await world.step(said)
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": reply.observation},
            ]
            if reply.done:
                await self.reward(key, 1.0, reply.observation)
                return "done"
        await self.reward(key, 0.0, messages[-1]["content"])
        return "lost"

    async def reward(self, key: str, reward: Any, observation: str = "") -> tuple[int, Any]:
        return await self.post(
            f"/episodes/{quote(key, safe='')}/reward", {"reward": reward, "observation": observation}
        )

    async def all_needed(self, tasks: dict[str, int], *, passes: int = 40, name: str = "") -> None:
        """Play every task until the run needs no further episode of any."""
        for n in range(passes):
            _, status = await self.get("/status")
            needed = dict(status["needed"]) if status["tasks"] else dict.fromkeys(tasks, 1)
            if not needed and not status["units_in_play"]:
                return
            played = [
                self.play(f"{name}{task}-{n}-{i}", tasks[task], task)
                for task in needed
                for i in range(needed[task])
            ]
            await asyncio.gather(*played)
            await asyncio.sleep(0.02)
        raise AssertionError("the run never had enough")


def setup_of(
    recipe: Recipe,
    *,
    student: Any = None,
    teacher: Any = None,
    spending: SpendingLimits | None = None,
    **settings: Any,
) -> Setup:
    given = Settings(
        recipe=recipe,
        **{"student": "student", "teacher": "teacher", "tasks": "harness", "seed": 3} | settings,
    )
    policies = student or Reader(errs=0.4), teacher or Reader(tokens=11)
    return Setup(given, Harness("toy through serve", recipe.T_max), *policies, spending or SpendingLimits())


@asynccontextmanager
async def served(folder: Path, setup: Setup, *, ended: bool = True, **serving: Any) -> AsyncIterator[Client]:
    """A server of the run in this loop; at its end it is closed, or as if its process were stopped."""
    opened: asyncio.Future[tuple[str, asyncio.Event]] = asyncio.get_running_loop().create_future()
    how = Serving(port=0, **serving)

    desks: list[Desk] = []

    @asynccontextmanager
    async def answer(desk: Desk, stop: asyncio.Event) -> AsyncIterator[None]:
        desks.append(desk)
        async with answering(desk, how) as address:
            opened.set_result((address, stop))
            yield

    running = asyncio.create_task(serve(folder, setup, how, answer))
    done, _ = await asyncio.wait([running, opened], return_when=asyncio.FIRST_COMPLETED)
    if running in done:
        await running
    address, stop = await opened
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(HANG_S)) as session:
        client = Client(address, session, desk=desks[0])
        try:
            yield client
            if ended and not running.done():
                await client.post("/close", {})
                async with asyncio.timeout(HANG_S):
                    await running
        finally:
            stop.set()
            async with asyncio.timeout(HANG_S):
                await running


RECIPE = preset("op-short", K=2, n=1, T_max=12)
SYSTEM = {"role": "system", "content": "Reach the end."}
FIRST = [SYSTEM, {"role": "user", "content": "You stand at 0 of 3."}]
ENDED = {"role": "user", "content": "You are at 1 of 3."}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def during(
    folder: Path,
    act: Callable[[Client], Awaitable[Any]],
    *,
    setup: Any = None,
    ended: bool = False,
    **serving: Any,
) -> Any:
    """What `act` returns, while a run is served."""

    async def run() -> Any:
        async with (
            asyncio.timeout(HANG_S),
            served(folder, setup or setup_of(RECIPE), ended=ended, **serving) as harness,
        ):
            return await act(harness)

    return asyncio.run(run())
