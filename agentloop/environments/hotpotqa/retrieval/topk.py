"""The k best documents of a BM25 index whose scores are stored by word."""

# ruff: noqa: PLR0917 - numba calls are fastest and plainest by position
from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float32]


@njit(cache=True, nogil=True)
def best_documents(
    data: Reals, indices: npt.NDArray[np.int32], indptr: Ints, tokens: Ints, n_docs: int, k: int
) -> tuple[Ints, Reals]:
    """At most k documents with a score above 0, best first, equal scores by number; and their scores.

    Args:
        data: [E] float32 scores of pairs of a word and a document.
        indices: [E] int32 documents of these pairs.
        indptr: [V + 1] int64; pairs of word v are indptr[v]:indptr[v + 1].
        tokens: [Q] int64 words of the query; one that occurs twice counts twice.
        n_docs: number of documents N.
        k: at least 1.
    """
    scores = np.zeros(n_docs, np.float32)
    for token in tokens:
        for i in range(indptr[token], indptr[token + 1]):
            scores[indices[i]] += data[i]
    documents, values, found = np.empty(k, np.int64), np.empty(k, np.float32), 0
    for doc in range(n_docs):
        score = scores[doc]
        if score <= 0 or (found == k and score <= values[found - 1]):
            continue
        # Documents come in rising order, so an equal score stays behind the earlier one.
        at = found if found < k else k - 1
        while at > 0 and values[at - 1] < score:
            documents[at], values[at] = documents[at - 1], values[at - 1]
            at -= 1
        documents[at], values[at] = doc, score
        found = min(found + 1, k)
    return documents[:found], values[:found]
