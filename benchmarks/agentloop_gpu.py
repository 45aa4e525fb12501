"""The loop with vLLM in process on one GPU: python benchmarks/agentloop_gpu.py --model FOLDER [--out FOLDER]

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
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]

from agentloop.collect import Settings, collect
from agentloop.render.codec import encode_turn, load_codec
from agentloop.token_policy import Engine, Sampled, TokenPolicy, parse_tokens
from agentloop.types import Environment, Message, Replay, Reply, Task
from occupancy.recipe import preset

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

    seeded = True

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

    seeded, window = True, 8192

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

    cpu, began = time.process_time(), time.perf_counter()
    settings = Settings(recipe=recipe, student="vllm", teacher="expert", tasks=tasks)
    with Cores() as cores, Gpu() as gpu:
        await collect(
            folder, settings, environments=worlds, student=policy, teacher=teacher, progress=progress
        )
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
        "environment_cpu_share_of_all_cores": cores.share,
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
    with Gpu() as gpu:
        await asyncio.gather(*(worker() for _ in range(min(at_once, len(requests)))))
    wall = time.perf_counter() - began
    return {
        "at_once": at_once,
        "wall_s": wall,
        "output_tokens": tokens,
        "output_tokens_per_s": tokens / wall,
        "process_cpu_share_of_one_core": (time.process_time() - cpu) / wall,
        "gpu_busy_share": gpu.share,
    }


def bottleneck(row: dict[str, Any]) -> str:
    """Who kept the other waiting: cores that are nearly all busy, or an engine that never runs dry."""
    if row["environment_cpu_share_of_all_cores"] > 0.75:
        return "environments: their processes keep the cores busy"
    if row["engine_has_requests_share"] > 0.95 and row["mean_in_flight"] > 8:
        return "engine: it always has requests, and the cores are not busy"
    return "neither: episodes wait for one another's turns; give more --workers"


class Cores:
    """CPU time of the environments' worker processes, as a share of all cores over a `with`."""

    def __enter__(self) -> Cores:
        self._spent: dict[int, float] = {}
        self._first: dict[int, float] = {}
        self._began, self._stop = time.perf_counter(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        spent = sum(self._spent[pid] - self._first[pid] for pid in self._spent)
        self.share = spent / (time.perf_counter() - self._began) / len(os.sched_getaffinity(0))

    def _watch(self) -> None:
        # A worker that ends between two looks loses less than a second of its time.
        while not self._stop.wait(0.5):
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    if b"agentloop.alfworld.worker" not in stat.with_name("cmdline").read_bytes():
                        continue
                    fields = stat.read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                pid = int(stat.parent.name)
                used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                self._first.setdefault(pid, used)
                self._spent[pid] = used


class Gpu:
    """Share of the time that the GPU ran anything, by its driver, over a `with`; None without a GPU."""

    def __enter__(self) -> Gpu:
        self._seen: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.share = sum(self._seen) / len(self._seen) / 100 if self._seen else None

    def _watch(self) -> None:
        try:
            import pynvml
        except ImportError:
            return
        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(0)
        while not self._stop.wait(0.25):
            self._seen.append(pynvml.nvmlDeviceGetUtilizationRates(card).gpu)


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    codec = load_codec(given.model)
    options = f"max_tokens={given.max_tokens},window=8192,dtype={given.dtype},at_once={given.sequences}"
    spec = parse_tokens(f"{given.model},{options},memory={given.memory},eager={given.eager}")
    began = time.perf_counter()
    engine: Engine
    if given.fake:
        engine = Sleeping(encode_turn(codec, "go to desk 1"), codec.closing_ids[-1])
    else:
        from agentloop.vllm_engine import open_vllm

        engine = await open_vllm(spec, codec)
    found: dict[str, Any] = {"start_s": time.perf_counter() - began, "cores": len(os.sched_getaffinity(0))}
    print(json.dumps(found), flush=True)
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

        # So does the loop, which imports and compiles.
        await in_fast_world(Watched(engine), "warm", 32)
        if (inner := getattr(engine, "_engine", None)) is not None:
            await inner.reset_prefix_cache()
        watched = Watched(engine)
        fast = await in_fast_world(watched, "fast", given.rooms)
        found["fast"] = fast
        print(json.dumps(found, indent=2), flush=True)
        bares = [
            ("bare_same_concurrency", engine, given.at_once),
            ("bare_all_at_once", engine, 10**9),
            ("bare_without_seeds", engine if given.fake else unseeded(engine), given.at_once),
        ]
        for name, bare, at_once in bares:
            found[name] = await run_bare(bare, watched.requests, name=name, at_once=at_once)
            ratio = fast["output_tokens_per_s"] / found[name]["output_tokens_per_s"]
            found[name]["loop_over_bare"] = ratio
        print(json.dumps(found, indent=2), flush=True)
        if given.games:
            from agentloop.alfworld.pool import open_alfworld

            worlds = open_alfworld(workers=given.workers, timeout_s=300)
            alfworld = preset("op-short", K=3, n=given.proposals, T_max=given.horizon)
            try:
                found["alfworld"] = await run_loop(
                    watched.fresh(),
                    spec,
                    codec,
                    worlds,
                    tasks=f"valid_seen:{given.games}",
                    recipe=alfworld,
                    folder=Path(place) / "alfworld",
                )
            finally:
                await worlds.close()
            found["bottleneck"] = bottleneck(found["alfworld"])
    await engine.close()
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--model", required=True, help="folder of the model")
    arguments.add_argument("--out", help="folder for gpu.json")
    arguments.add_argument("--at-once", type=int, default=512, help="episodes at a time in the fast world")
    arguments.add_argument("--rooms", type=int, default=1024, help="episodes in the fast world")
    arguments.add_argument("--sequences", type=int, default=512, help="requests that vLLM runs at a time")
    arguments.add_argument("--max-tokens", type=int, default=32)
    arguments.add_argument("--games", type=int, default=140, help="ALFWorld games; 0 leaves them out")
    arguments.add_argument("--proposals", type=int, default=4, help="rollouts of each game")
    arguments.add_argument("--horizon", type=int, default=30, help="turns of an ALFWorld episode")
    arguments.add_argument("--workers", type=int, default=48, help="ALFWorld processes")
    arguments.add_argument("--dtype", default="bfloat16")
    arguments.add_argument("--memory", type=float, default=0.6, help="share of the GPU's memory for vLLM")
    arguments.add_argument("--eager", type=int, default=0)
    arguments.add_argument("--fake", type=int, default=0)
    given = arguments.parse_args()
    found = asyncio.run(measure(given))
    text = json.dumps(found, indent=2)
    if given.out:
        Path(given.out).mkdir(parents=True, exist_ok=True)
        (Path(given.out) / "gpu.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
