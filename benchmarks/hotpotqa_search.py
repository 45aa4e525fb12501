"""HotpotQA's retriever: time to build, time and recall of a query, and queries per second over HTTP.

    FEWSTEPS_DATA=... python -m benchmarks hotpotqa_search --repeats 3

Times are CPU seconds of the processes that did the work, since a shared machine makes clocks useless. Over
HTTP, where `--clients` ask a server of `--processes`, both are printed, and what two cores would do if they
had nothing else to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from agentloop.environments.hotpotqa.questions import Question, find_folder, read_questions
from agentloop.environments.hotpotqa.retrieval.index import Bm25, load_bm25
from benchmarks.busy import cpu_s


def main(repeats: int = 3, clients: int = 32, processes: int = 2, queries: int = 6000) -> None:
    folder = find_folder()
    corpus, questions = folder / "corpus.parquet", read_questions(folder)
    packages = ("PyStemmer", "numba", "numpy", "aiohttp")
    print(f"{date.today()}, {machine()}, Python {platform.python_version()}", end="; ")
    print(", ".join(f"{name} {version(name)}" for name in packages))
    with tempfile.TemporaryDirectory() as scratch:
        builds = [build(corpus, Path(scratch) / str(i)) for i in range(repeats)]
        show("build and store, CPU s", builds)
        index = load_bm25(Path(scratch) / "0")
        size = sum(file.stat().st_size for file in (Path(scratch) / "0").iterdir())
        print(f"{index.name}; {size / 1e6:.1f} MB on disk")
        show("open, CPU s", [spent(lambda: load_bm25(Path(scratch) / "0")) for _ in range(repeats)])
        for _ in range(repeats):
            times = [spent(lambda q=q: index.find(q.text, 5)) * 1e3 for q in questions]
            p50, p95 = np.percentile(times, [50, 95])
            print(f"query, CPU ms: p50 {p50:.3f}, p95 {p95:.3f}, mean {np.mean(times):.3f}")
        for k in (3, 5, 10):
            print(f"recall@{k} of gold titles: {recall(index, questions, k):.4f}")
        for _ in range(repeats):
            texts = [questions[i % len(questions)].text for i in range(queries)]
            print(over_http(corpus, Path(scratch) / "cache", texts, clients, processes))


def build(corpus: Path, folder: Path) -> float:
    """CPU seconds in a process of its own, after its imports."""
    folder.mkdir()
    code = (
        "import pyarrow.parquet, time; from pathlib import Path\n"
        "from agentloop.environments.hotpotqa.retrieval.index import build_bm25\n"
        "began = time.process_time()\n"
        f"build_bm25([Path({str(corpus)!r})], Path({str(folder)!r}))\nprint(time.process_time() - began)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def recall(index: Bm25, questions: list[Question], k: int) -> float:
    hits = [{p.title for p in index.find(q.text, k)} & set(q.gold_titles) for q in questions]
    return float(np.mean([len(hit) / len(q.gold_titles) for hit, q in zip(hits, questions, strict=True)]))


def over_http(corpus: Path, cache: Path, texts: list[str], clients: int, processes: int) -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "agentloop.environments.hotpotqa", "serve"]
    command += ["--corpus", str(corpus), "--cache", str(cache)]
    server = subprocess.Popen([*command, "--port", str(port), "--processes", str(processes)])
    try:
        asyncio.run(ask_all(f"http://127.0.0.1:{port}/retrieve", texts[:200], clients, patience_s=120))
        before, children = time.process_time(), server_cpu(server.pid)
        began = time.perf_counter()
        latencies = asyncio.run(ask_all(f"http://127.0.0.1:{port}/retrieve", texts, clients))
        wall = time.perf_counter() - began
        client, served = time.process_time() - before, server_cpu(server.pid) - children
    finally:
        server.terminate()
        server.wait()
    p50, p95 = np.percentile(latencies, [50, 95]) * 1e3
    return (
        f"HTTP, {clients} clients, one query a request, {processes} server processes: "
        f"{len(texts) / wall:.0f} queries/s by the clock (latency p50 {p50:.1f} ms, p95 {p95:.1f} ms); "
        f"CPU a query: server {served / len(texts) * 1e3:.2f} ms, clients {client / len(texts) * 1e3:.2f}, "
        f"or {2 * len(texts) / (served + client):.0f} queries/s on 2 free cores with clients; "
        f"load average {os.getloadavg()[0]:.1f}"
    )


async def ask_all(url: str, texts: list[str], clients: int, *, patience_s: float = 0.0) -> list[float]:
    import aiohttp

    waiting, latencies = iter(texts), []
    deadline = time.monotonic() + patience_s
    async with aiohttp.ClientSession() as session:

        async def client() -> None:
            for text in waiting:
                body = {"queries": [text], "topk": 3, "return_scores": True}
                began = time.perf_counter()
                while True:
                    try:
                        async with session.post(url, json=body) as response:
                            found: dict[str, Any] = await response.json()
                        break
                    except aiohttp.ClientConnectionError:
                        if time.monotonic() > deadline:
                            raise
                        await asyncio.sleep(0.2)
                assert len(found["result"][0]) == 3, json.dumps(found)[:200]
                latencies.append(time.perf_counter() - began)

        await asyncio.gather(*(client() for _ in range(clients)))
    return latencies


def server_cpu(pid: int) -> float:
    """CPU seconds of the server's processes so far (Linux)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_s(int(one)) for one in (pid, *children))


def spent(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def show(name: str, values: list[float]) -> None:
    print(f"{name}: " + ", ".join(f"{value:.3f}" for value in values))


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    return f"{model}, {os.cpu_count()} cores"
