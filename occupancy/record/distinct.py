"""What distinguishes texts from each other: folders and policies of one call, named by where they differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile


def differences(texts: Sequence[str]) -> list[str]:
    """Of each text what not all share: settings after a comma, and first and last words before it.

    Words are what slashes and colons separate. Equal texts, and texts that share nothing, are as they were.

    Example:
        >>> differences(["vllm:runs/bc/epoch-5,top_p=1", "vllm:runs/op/epoch-5,top_p=1"])
        ['bc', 'op']
    """
    heads = [[word for word in re.split("[:/]", text.partition(",")[0]) if word] for text in texts]
    settings = [text.split(",")[1:] for text in texts]
    own = [[one for one in mine if not all(one in every for every in settings)] for mine in settings]
    begin = _alike(heads)
    words = [head[begin:] for head in heads]
    end = _alike([head[::-1] for head in words])
    words = [head[: len(head) - end] for head in words]
    if not all(map(any, zip(words, own, strict=True))):
        words, end = [head[max(begin - 1, 0) :] for head in heads], 0
    if not (begin or end) and own == settings:
        return list(texts)
    return [",".join(["/".join(head), *mine]).strip(",") for head, mine in zip(words, own, strict=True)]


def _alike(lists: Sequence[Sequence[str]]) -> int:
    """How many first words all of the lists share."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*lists, strict=False)))
