"""What stands behind the retriever's seam: dense, fused, and one's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hotpotqa_world import PASSAGES, by_words

from agentloop.environments.hotpotqa.retrieval.passages import Corpus, Passage, store
from agentloop.environments.hotpotqa.retrieval.retriever import Retriever, dense, fused, open_retriever
from occupancy.record.errors import DataError, InputError


def fixed(name: str, order: Sequence[int]) -> Retriever:
    async def search(query: str, k: int) -> Sequence[Passage]:
        return [PASSAGES[i] for i in order][:k]

    return Retriever(name, search)


def ids(retriever: Retriever, k: int) -> list[str]:
    return [p.doc_id for p in asyncio.run(retriever.search("q", k))]  # type: ignore[arg-type]


def test_fusion_sums_reciprocal_ranks() -> None:
    both = fused(fixed("a", [0, 1, 2]), fixed("b", [2, 0, 9]))
    assert ids(both, 4) == ["0", "2", "1", "9"]
    (best, *_) = asyncio.run(both.search("q", 1))  # type: ignore[arg-type]
    assert best.score == pytest.approx(1 / 61 + 1 / 62)
    assert both.name == "fused(a; b)"


def test_fusion_breaks_ties_by_document_number() -> None:
    assert ids(fused(fixed("a", [10, 9]), fixed("b", [9, 10])), 2) == ["9", "10"]


def test_dense_search_is_the_largest_inner_product(tmp_path: Path) -> None:
    from test_hotpotqa_index import TEXTS, jsonl

    store([jsonl(tmp_path / "c.jsonl", TEXTS)], tmp_path / "c.arrow")
    corpus = Corpus(tmp_path / "c.arrow")
    vectors = np.array([[1, 0], [0, 1], [1, 1], [2, 0], [2, 0], [0, 0]], np.float32)
    found = dense(corpus, vectors, lambda query: np.array([1.0, 0.5]), name="toy")
    assert ids(found, 3) == ["3", "4", "2"], "equal scores by document number"
    with pytest.raises(DataError, match=r"\(5, 2\)"):
        dense(corpus, vectors[:5], lambda query: vectors[0], name="toy")


def test_ones_own_retriever_is_named_by_its_function() -> None:
    made = open_retriever("test_hotpotqa_retriever:own", corpus=[])
    assert made.name == "own"
    with pytest.raises(InputError, match="cannot be imported"):
        open_retriever("nowhere:own", corpus=[])
    with pytest.raises(InputError, match="returned a list: expected a Retriever"):
        open_retriever("test_hotpotqa_retriever:none", corpus=[])
    with pytest.raises(InputError, match="raised TypeError"):
        open_retriever("test_hotpotqa_retriever:ids", corpus=[])


def none() -> list[Retriever]:
    return []


def own() -> Retriever:
    return Retriever("own", by_words)
