"""BM25 in a loop over documents, from its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence


def bm25(
    query: Sequence[str], documents: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
) -> list[float]:
    """Lucene's: sum over query words of ln(1 + (N - n + .5)/(n + .5)) tf / (tf + k1 (1 - b + b L/avg))."""
    N, average = len(documents), sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        score = 0.0
        for word in query:
            n = sum(word in other for other in documents)
            tf = document.count(word)
            length = k1 * (1 - b + b * len(document) / average)
            score += math.log(1 + (N - n + 0.5) / (n + 0.5)) * tf / (tf + length)
        scores.append(score)
    return scores


def best(scores: Sequence[float], k: int) -> list[int]:
    """Documents by falling score, equal ones by number, those without a score left out."""
    return [i for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)) if scores[i] > 0][:k]
