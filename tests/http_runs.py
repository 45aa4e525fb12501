"""Runs of the toy world whose student and teacher are models behind an HTTP server."""

from __future__ import annotations

from pathlib import Path

from toy_world import Corridors

from agentloop.policies.by_name import open_policy
from agentloop.policies.chat_spec import identity
from agentloop.run.collect import Settings, Setup, SpendingLimits, collect
from benchmarks.mock_server import Mock
from occupancy.record.recipe import preset
from occupancy.runs import Run

RECIPE = preset("op-short", K=3, n=2, T_max=12)


async def collected(
    folder: Path, mock: Mock, *, spending: SpendingLimits | None = None, options: str = ""
) -> Run:
    server = await mock.serve()
    base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    names = {who: f"openai:{who}@{base},max_tokens=64{options}" for who in ("student", "teacher")}
    worlds = Corridors(workers=8)
    policies = {who: open_policy(name, worlds) for who, name in names.items()}
    try:
        settings = Settings(recipe=RECIPE, tasks="8", **{who: identity(name) for who, name in names.items()})
        spending = spending or SpendingLimits(backoff_s=0)
        return await collect(folder, Setup(settings, worlds, spending=spending, **policies))
    finally:
        for policy in policies.values():
            await policy.close()  # type: ignore[attr-defined]
        server.close()
        await server.wait_closed()
