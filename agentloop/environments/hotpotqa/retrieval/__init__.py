"""Passages for a query: a corpus and its BM25 index, a server for it, a client, and joins of several.

`open_retriever` opens what `--env-set retriever=` names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .index import open_bm25
from .passages import Passage
from .retriever import Retriever


def open_retriever(spec: str, *, corpus: Sequence[Path], cache: Path | None = None) -> Retriever:
    """The retriever that `spec` names; `corpus` and `cache` are for the embedded one."""
    if spec == "bm25":
        return embedded(corpus, cache=cache)
    if spec.startswith(("http://", "https://")):
        from .client import remote

        return remote(spec)
    from agentloop.policies.by_name import named

    made: Retriever = named(spec)()
    return made


def embedded(corpus: Sequence[Path], *, cache: Path | None = None) -> Retriever:
    """BM25 in this process."""
    index = open_bm25(corpus, cache=cache)

    async def search(query: str, k: int) -> Sequence[Passage]:
        return index.find(query, k)

    return Retriever(index.name, search)
