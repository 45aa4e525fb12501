"""What a retriever is, how it is named, and two made of others: dense vectors, and fused rankings.

Search           async (query, k) -> at most k passages, best first
bm25             the embedded index (default)
http://host:port a server with Search-R1's interface
module:function  one of your own: a function that returns a Retriever; `fused` joins several
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentloop.types import EnvironmentFailed, Status
from occupancy.record.errors import DataError, InputError

from .index import open_bm25
from .passages import Corpus, Passage

Search = Callable[[str, int], Awaitable[Sequence[Passage]]]


class RetrieverFailed(EnvironmentFailed):
    """No passages could be had, retries included; the episode ends as `retriever_failed`."""

    status = Status.RETRIEVER_FAILED


@dataclass(frozen=True)
class Retriever:
    """A search function with its name, which results are stored under."""

    name: str
    search: Search
    close: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
    """By default there is nothing to close."""


def open_retriever(spec: str, *, corpus: Sequence[Path], cache: Path | None = None) -> Retriever:
    """The retriever that `spec` names; `corpus` and `cache` are for the embedded one."""
    if spec.startswith(("http://", "https://")):
        from .client import remote

        return remote(spec)
    if spec != "bm25":
        from agentloop.policies.by_name import called, named

        made = called(named(spec), f"retriever {spec!r}")
        if not isinstance(made, Retriever):
            raise InputError(f"{spec!r} returned a {type(made).__name__}: expected a Retriever")
        return made
    return embedded(corpus, cache=cache)


def embedded(corpus: Sequence[Path], *, cache: Path | None = None) -> Retriever:
    """BM25 in this process."""
    index = open_bm25(corpus, cache=cache)

    async def search(query: str, k: int) -> Sequence[Passage]:
        return index.find(query, k)

    return Retriever(index.name, search)


def dense(corpus: Corpus, vectors: Any, embed: Callable[[str], Any], *, name: str) -> Retriever:
    """Exact search by inner product.

    Args:
        corpus: N passages.
        vectors: [N, D] float32, one row a passage; may be memory-mapped.
        embed: query -> [D], by the model that made the rows.
        name: the model's, for the results' record.
    """
    import numpy as np

    if vectors.ndim != 2 or len(vectors) != len(corpus):
        raise DataError(f"vectors have shape {vectors.shape}: expected a row for each of {len(corpus)}")

    async def search(query: str, k: int) -> Sequence[Passage]:
        scores = vectors @ np.asarray(embed(query), np.float32)
        # To sort all scores takes a second for millions of them.
        last = max(len(scores) - k, 0)
        near = np.flatnonzero(scores >= np.partition(scores, last)[last])
        best = near[np.lexsort((near, -scores[near]))][:k]
        return [corpus.passage(int(i), score=float(scores[i])) for i in best]

    return Retriever(f"dense {name}, {len(corpus)} passages", search)


def fused(*parts: Retriever, depth: int = 50, constant: int = 60) -> Retriever:
    """Reciprocal-rank fusion of several retrievers (Cormack et al. 2009): score sum 1 / (constant + rank).

    depth  passages asked of each part
    """

    async def search(query: str, k: int) -> Sequence[Passage]:
        scores: dict[str, float] = defaultdict(float)
        found: dict[str, Passage] = {}
        rankings = await asyncio.gather(*(part.search(query, max(k, depth)) for part in parts))
        for ranking in rankings:
            for rank, passage in enumerate(ranking, 1):
                scores[passage.doc_id] += 1 / (constant + rank)
                found.setdefault(passage.doc_id, passage)
        best = sorted(found, key=lambda i: (-scores[i], len(i), i))[:k]
        return [replace(found[i], score=scores[i]) for i in best]

    async def close() -> None:
        for part in parts:
            await part.close()

    return Retriever(f"fused({'; '.join(part.name for part in parts)})", search, close)
