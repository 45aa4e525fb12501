"""`fewsteps serve`: Algorithm 1 through an OpenAI-compatible address, for a harness that is not ours."""

from __future__ import annotations

import argparse
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agentloop.commands.collect import show_run
from agentloop.commands.recipes import (
    PRESETS,
    add_collecting,
    fill,
    read_recipes,
    read_settings,
    read_spending,
)
from agentloop.serve.settings import HARNESS, Port, Serving
from occupancy.record.errors import BudgetStopped, InputError
from occupancy.record.recipe import Recipe
from occupancy.record.show import add_json, progress, say
from occupancy.record.specs import Count, Positive, Seed, option, settings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable

    from agentloop.run.settings import Settings
    from agentloop.serve.desk import Desk, Harness
    from occupancy.record.rows import Rows


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `serve`."""
    command = commands.add_parser(
        "serve",
        help="collect through a harness of your own: an OpenAI-compatible address",
        description="Answer a harness's calls as the recipe says: the student's turns, then the\n"
        "recorded prefix and the teacher's. The same command on the same folder goes on\n"
        "where it was stopped.",
        epilog=PRESETS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("out", metavar="RUN", help="the run folder")
    add("--recipe", action="append", default=[], help="a preset, or a TOML file (default: op-short)")
    add("--harness", default=HARNESS, metavar="NAME", help="name of harness and tasks, for the run's records")
    add("--max-turns", type=option(Count), default=50, help="most turns of an episode (default: 50)")
    add("--seed", type=option(Seed), default=0, help="seed of every random draw (default: 0)")
    add_collecting(command)
    group = command.add_argument_group("serving", "how; may be changed at a resume")
    add = group.add_argument
    add("--host", default=Serving.host, help="address to listen on (default: this machine)")
    add("--port", type=option(Port), default=Serving.port, help="0 takes a free one (default: %(default)s)")
    add("--key-env", metavar="NAME", help="environment variable with the API key that a harness must give")
    add(
        "--tasks",
        type=option(Count),
        dest="most_tasks",
        default=0,
        metavar="N",
        help="end after N tasks (default: when stopped or closed)",
    )
    add(
        "--rewards",
        metavar="KIND:PLACE",
        help="a framework's own records: verifiers:FOLDER of vf-eval, harbor:JOBS",
    )
    add(
        "--play",
        metavar="COMMAND",
        help="the harness's own command, repeated while the run needs episodes; {url} is this server's",
    )
    seconds: dict[str, Any] = {"type": option(Positive), "metavar": "SECONDS"}
    add("--idle", **seconds, default=Serving.idle_s, help="silence that ends an episode")
    add("--wait", **seconds, default=Serving.wait_s, help="longest wait of a call")
    add_json(command)
    command.set_defaults(handler=_serve, tasks=None, env=None, env_set=[], end_on="")


def _serve(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.serve.desk import Harness

    fill(given, ("teacher",))
    if len(given.recipe) > 1:
        raise InputError(f"--recipe {', '.join(given.recipe)}: one run is served with one recipe; give one")
    if "\n" in given.harness:
        raise InputError(f"--harness {given.harness!r}: expected a name in one line")
    changed = settings(Recipe, given.set, of="--set").get("T_max")
    harness = Harness(f"{given.harness} through serve", int(changed or given.max_turns))
    (recipe,) = read_recipes(given, harness).values()
    key = _access_key(given.key_env)
    serving = Serving(given.host, given.port, key, given.idle, given.wait, tasks=given.most_tasks)
    given.tasks, given.env, given.env_set = HARNESS, HARNESS, []
    wanted = read_settings(given, recipe)
    try:
        status = asyncio.run(_until_done(given, harness, wanted, serving))
    except BudgetStopped:
        show_run(given, status="budget_stopped")
        raise
    show_run(given, status=status)
    return 0


def _access_key(name: str | None) -> str:
    if name is None:
        return ""
    key = os.environ.get(name, "").strip()
    if len(key) < 8 or not key.isascii() or not key.isprintable() or "/" in key:
        raise InputError(
            f"--key-env {name}: the variable is no key: expected 8 or more ASCII characters without /"
        )
    return key


async def _until_done(given: argparse.Namespace, harness: Harness, wanted: Settings, serving: Serving) -> str:
    import asyncio

    from agentloop.commands.arguments import opened_policies
    from agentloop.listening import stop_on_signals
    from agentloop.run.types import Setup
    from agentloop.serve.play import END_S, play
    from agentloop.serve.rewards import follow, records_of
    from agentloop.serve.run import serve
    from agentloop.serve.server import answering

    tokens = units = 0

    def told(line: str) -> None:
        say(f"serve: {line}")

    records = records_of(given.rewards, told) if given.rewards else None

    @asynccontextmanager
    async def answer(desk: Desk, stop: asyncio.Event) -> AsyncIterator[None]:
        beside: list[asyncio.Task[None]] = []

        async def or_stop(work: Awaitable[None]) -> None:
            try:
                await work
            except Exception:
                stop.set()
                raise

        stop_on_signals(stop)
        async with answering(desk, serving, say=told) as address:
            told(f"{given.out} answers at {address}/v1; Ctrl-C stops it, and the same command goes on")
            if given.play is not None:
                beside.append(asyncio.create_task(or_stop(play(given.play, address, desk))))
            if records is not None:
                beside.append(asyncio.create_task(or_stop(follow(desk, records))))
            try:
                yield
            finally:
                if given.play is not None and not stop.is_set():
                    await asyncio.wait(beside[:1], timeout=END_S)  # what is played began first
                for task in beside:
                    task.cancel()
                ends = await asyncio.gather(*beside, return_exceptions=True)
        for failure in ends:
            if isinstance(failure, Exception):
                raise failure

    async with opened_policies(harness, given.student, given.teacher) as (student, teacher):
        with progress("serve") as advance:

            def committed(done: int, total: int, rows: Rows) -> None:
                nonlocal tokens, units
                units += sum(e["kind"] in ("rollout", "demo") for e in rows.get("episodes", []))
                tokens += sum(t["output_tokens"] for t in rows.get("turns", []) if t["author"] == "teacher")
                advance(units, None, f"{tokens:,} new teacher tokens")

            setup = Setup(wanted, harness, student, teacher, read_spending(given))
            finished = await serve(given.out, setup, serving, answer, progress=committed)
    return "finished" if finished else "stopped"
