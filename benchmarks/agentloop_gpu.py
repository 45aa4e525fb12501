"""The loop with vLLM in process on one GPU: python -m benchmarks agentloop_gpu --model FOLDER [--out FOLDER]

fast       a world that answers at once: tokens/s of the loop against bare vLLM for the very same requests,
           given to it with the loop's own concurrency, all at once, and without a seed of their own
alfworld   the same student in real ALFWorld games (FEWSTEPS_DATA), one process a game: who is the
           bottleneck, the engine or the environments, with the share of the time that each is busy

Needs vllm, torch and a GPU; `--fake 1` runs the same code against an engine that sleeps, to try it without
one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.policies.token_policy import Engine, Sampled, TokenPolicy, parse_tokens
from agentloop.render import load_codec
from agentloop.render.codec import encode_turn
from agentloop.run.collect import Settings, Setup, collect
from agentloop.types import Environment, Message, Replay, Reply, Task
from benchmarks.busy import ENGINE, WORKER, Cores, Gpu, machine
from occupancy.record.recipe import preset

SENTENCE = "You are in the middle of a room. You see a cabinet 4, a desk 1, and a drawer 12."
WORDS = tuple(SENTENCE.split())


class FastWorld:
    """Observations of 40 words at no cost; an episode ends by its horizon."""

    async def reset(self, seed: int) -> Reply:
        self.rng = random.Random(seed)
        return Reply(" ".join(self.rng.choices(WORDS, k=80)))

    async def step(self, text: str) -> Reply:
        return Reply(" ".join(self.rng.choices(WORDS, k=40)))

    def prompt(self, first: Reply) -> Sequence[Message]:
        return (Message("system", "Act.", "task"), Message("user", first.observation, "environment"))

    async def ask(self, question: str, **arguments: Any) -> Any:
        return "look"


class FastWorlds:
    """As many of them as asked for, all open at once."""

    name, version, replay, T_max, policies = "fast", "fast 1", Replay.EXACT, 12, ()

    def __init__(self, at_once: int) -> None:
        self.capacity = at_once

    def tasks(self, spec: str, *, seed: int = 0) -> Sequence[Task]:
        return [Task(f"room/{i}", f"room/{i}", "train") for i in range(int(spec))]

    def policy(self, spec: str) -> None:
        return None

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Environment]:
        yield FastWorld()

    async def close(self) -> None:
        return None


@dataclass
class Watched:
    """An engine whose requests are written down, with the time that any of them was in flight."""

    engine: Engine
    requests: list[tuple[array[int], int]] = field(default_factory=list)
    tokens: int = 0
    busy_s: float = 0.0
    flight_s: float = 0.0
    """Summed over requests: divided by the wall time, the mean number in flight."""
    _running: int = 0
    _since: float = 0.0

    @property
    def window(self) -> int:
        return self.engine.window

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        self.requests.append((array("i", prompt), seed))
        began = time.perf_counter()
        if self._running == 0:
            self._since = began
        self._running += 1
        try:
            sampled = await self.engine.sample(prompt, seed=seed, request=request)
        finally:
            now = time.perf_counter()
            self._running -= 1
            self.flight_s += now - began
            if self._running == 0:
                self.busy_s += now - self._since
        self.tokens += len(sampled.ids)
        return sampled

    async def close(self) -> None:
        await self.engine.close()

    def fresh(self) -> Watched:
        return Watched(self.engine)


def unseeded(engine: Any) -> Engine:
    """The same vLLM, whose requests share one stream of random numbers: what seeds of their own cost."""

    def sampling(seed: int) -> Any:
        parameters = engine._sampling(seed)
        parameters.seed = None
        return parameters

    return type(engine)(engine._engine, sampling, engine._dead)


class Sleeping:
    """An engine without a model."""

    window = 8192

    def __init__(self, ids: list[int], end: int) -> None:
        self._ids = (*ids, end)

    async def sample(self, prompt: list[int], *, seed: int, request: str) -> Sampled:
        await asyncio.sleep(0.01)
        return Sampled(self._ids, -1.0)

    async def close(self) -> None:
        return None


async def run_loop(
    watched: Watched, spec: Any, codec: Any, worlds: Any, *, tasks: str, recipe: Any, folder: Path
) -> dict[str, Any]:
    """Collect with the watched engine as student; the teacher is the world's own expert."""

    async def opening(given: Any, _: Any) -> Engine:
        return watched

    policy = TokenPolicy(spec, codec, opening)
    teacher = worlds.policy("expert") or policy
    turns = 0

    def progress(done: int, total: int, rows: Any) -> None:
        nonlocal turns
        turns += len(rows.get("turns", ()))
        passed = time.perf_counter() - began
        print(f"{folder.name}: {done} of {total} units, {turns} turns, {passed:.0f} s", flush=True)

    cpu, began = time.process_time(), time.perf_counter()
    settings = Settings(recipe=recipe, student="vllm", teacher="expert", tasks=tasks)
    with Cores() as cores, Gpu() as gpu:
        await collect(folder, Setup(settings, worlds, policy, teacher), progress=progress)
    wall = time.perf_counter() - began
    return {
        "wall_s": wall,
        "turns": turns,
        "turns_per_s": turns / wall,
        "requests": len(watched.requests),
        "output_tokens": watched.tokens,
        "output_tokens_per_s": watched.tokens / wall,
        "prompt_tokens": sum(len(prompt) for prompt, _ in watched.requests),
        "engine_has_requests_share": watched.busy_s / wall,
        "mean_in_flight": watched.flight_s / wall,
        "loop_process_cpu_share_of_one_core": (time.process_time() - cpu) / wall,
        "engine_process_cpu_share_of_one_core": cores.used(ENGINE) / wall,
        "environment_cpu_share_of_all_cores": cores.used(WORKER) / wall / len(os.sched_getaffinity(0)),
        "gpu_busy_share": gpu.share,
    }


async def run_bare(
    engine: Engine, requests: Sequence[tuple[Sequence[int], int]], *, name: str, at_once: int
) -> dict[str, Any]:
    """The same requests in the same order, at most `at_once` in flight, without a loop around them."""
    waiting = iter(enumerate(requests))
    tokens = 0
    if (inner := getattr(engine, "_engine", None)) is not None:
        # The loop began with an empty cache of prefixes too.
        await inner.reset_prefix_cache()

    async def worker() -> None:
        nonlocal tokens
        for number, (prompt, seed) in waiting:
            sampled = await engine.sample(list(prompt), seed=seed, request=f"{name}-{number}")
            tokens += len(sampled.ids)

    cpu, began = time.process_time(), time.perf_counter()
    with Cores() as cores, Gpu() as gpu:
        await asyncio.gather(*(worker() for _ in range(min(at_once, len(requests)))))
    wall = time.perf_counter() - began
    return {
        "at_once": at_once,
        "wall_s": wall,
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / wall,
        "process_cpu_share_of_one_core": (time.process_time() - cpu) / wall,
        "engine_process_cpu_share_of_one_core": cores.used(ENGINE) / wall,
        "gpu_busy_share": gpu.share,
    }


def bottleneck(row: dict[str, Any]) -> str:
    """Whose processors are nearer to their limit: an engine is one process, and its scheduler one thread."""
    engine, worlds = row["engine_process_cpu_share_of_one_core"], row["environment_cpu_share_of_all_cores"]
    shares = f"environments use {worlds:.2f} of all cores, the engine's process {engine:.2f} of its one"
    if max(engine, worlds) < 0.5:
        return f"neither: {shares}; give more --workers"
    return f"{'engine' if engine > worlds else 'environments'}: {shares}"


async def measure(given: argparse.Namespace) -> None:
    codec = load_codec(given.model)
    options = f"max_tokens={given.max_tokens},window=8192,dtype={given.dtype},at_once={given.sequences}"
    options += f",memory={given.memory},eager={given.eager},logprobs={given.logprobs}"
    spec = parse_tokens(f"{given.model},{options}")
    began = time.perf_counter()
    engine: Engine
    if given.fake:
        engine = Sleeping(encode_turn(codec, "go to desk 1"), codec.closing_ids[-1])
    else:
        from agentloop.policies.vllm_engine import open_vllm

        engine = await open_vllm(spec, codec)
    found: dict[str, Any] = {}

    def tell(**new: Any) -> None:
        """Print what is new and write down all that is known: a run that is cut off leaves that."""
        found.update(new)
        print(json.dumps(new, indent=1), flush=True)
        if given.out:
            Path(given.out).mkdir(parents=True, exist_ok=True)
            (Path(given.out) / "gpu.json").write_text(json.dumps(found) + "\n")

    tell(
        **machine("vllm", "torch", "transformers", "tokenizers"),
        given=vars(given),
        start_s=time.perf_counter() - began,
    )
    with tempfile.TemporaryDirectory() as place:
        # The first requests compile and warm what the engine has left to its first use.
        few = [(encode_turn(codec, "warm up"), i) for i in range(given.sequences)]
        await run_bare(engine, few, name="warm", at_once=given.sequences)
        recipe = preset("op-short", K=1, n=1, T_max=12)

        async def in_fast_world(watched: Watched, name: str, rooms: int) -> dict[str, Any]:
            worlds = FastWorlds(given.at_once)
            folder = Path(place) / name
            return await run_loop(
                watched, spec, codec, worlds, tasks=str(rooms), recipe=recipe, folder=folder
            )

        async def in_bare(name: str, bare: Engine, at_once: int) -> None:
            row = await run_bare(bare, watched.requests, name=name, at_once=at_once)
            ratio = found["fast"]["output_tokens_per_s"] / row["output_tokens_per_s"]
            tell(**{name: row | {"loop_over_bare": ratio}})

        # So does the loop, which imports and compiles.
        await in_fast_world(Watched(engine), "warm", 32)
        if (inner := getattr(engine, "_engine", None)) is not None:
            await inner.reset_prefix_cache()
        watched = Watched(engine)
        tell(fast=await in_fast_world(watched, "fast", given.rooms))
        await in_bare("bare_same_concurrency", engine, given.at_once)
        if given.games:
            row = await in_alfworld(watched.fresh(), spec, codec, given, Path(place))
            tell(alfworld=row, bottleneck=bottleneck(row))
        await in_bare("bare_without_seeds", engine if given.fake else unseeded(engine), given.at_once)
        await in_bare("bare_all_at_once", engine, 10**9)
    await engine.close()


async def in_alfworld(
    watched: Watched, spec: Any, codec: Any, given: argparse.Namespace, place: Path
) -> dict[str, Any]:
    """Real games, the environment's own expert as teacher."""
    from agentloop.environments.alfworld.pool import open_alfworld

    worlds = open_alfworld(workers=given.workers, timeout_s=300)
    recipe = preset("op-short", K=3, n=given.proposals, T_max=given.horizon)
    tasks, folder = f"valid_seen:{given.games}", place / "alfworld"
    try:
        return await run_loop(watched, spec, codec, worlds, tasks=tasks, recipe=recipe, folder=folder)
    finally:
        await worlds.close()


async def main(
    *,
    model: str,
    out: str = "",  # folder of gpu.json, which is written after every part
    at_once: int = 512,  # episodes at a time in the fast world
    rooms: int = 1024,  # episodes in the fast world
    sequences: int = 512,  # requests that vLLM runs at a time
    max_tokens: int = 32,
    games: int = 140,  # of ALFWorld; 0 leaves them out
    proposals: int = 4,  # rollouts of each game
    horizon: int = 30,  # turns of an ALFWorld episode
    workers: int = 48,  # ALFWorld processes
    logprobs: int = 1,
    dtype: str = "bfloat16",
    memory: float = 0.6,  # fraction of the GPU's memory for vLLM
    eager: int = 0,
    fake: int = 0,
) -> None:
    await measure(argparse.Namespace(**locals()))
