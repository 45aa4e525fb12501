"""Passages as an observation, within a token budget that never costs the closing tag.

Each passage gets an equal part of the budget; what a short one leaves goes to the others. (Search-R1 cuts the
whole text on the right: a long first passage hides the others and the closing tag is lost.) Text from outside
cannot open or close a tag: every `<` that could is written `&lt;`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

from agentloop.policies.scripted import WORDS_AND_MARKS, words_and_marks
from occupancy.record.errors import InputError, imported

from .retrieval.passages import Passage

Ends = Callable[[str], Sequence[int]]
"""A tokenizer for budgets: the end of each token, as an offset into the text."""
LEAST_BUDGET = 64
"""Tokens; tags, notices and a line for each passage need them."""
ELLIPSIS = " …"

_TAG = re.compile(r"<(?=[/|\uff5c!]?[^\W\d])")


def harmless(text: str) -> str:
    """Text from outside on one line, with nothing in it that reads as a tag or a special token."""
    return _TAG.sub("&lt;", " ".join(text.split()))


@cache
def open_tokenizer(name: str) -> Ends:
    """`words-and-marks`, or a tokenizer.json of the `tokenizers` package."""
    if name == WORDS_AND_MARKS:
        return words_and_marks
    if not Path(name).is_file():
        raise InputError(f"tokenizer {name}: expected {WORDS_AND_MARKS}, or a tokenizer.json that exists")
    tokenizers = imported("tokenizers", "agents")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(name)
        # The file may say that texts are cut or filled up to a length: then it would count other tokens.
        tokenizer.no_truncation()
        tokenizer.no_padding()
    except Exception as error:  # the library raises a bare Exception
        raise InputError(f"tokenizer {name} cannot be read ({error}): expected a tokenizer.json") from error
    return lambda text: [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets]


def tokenizer_name(name: str) -> str:
    """Part of a run's version: a tokenizer.json by its content, since all have this name."""
    if name == WORDS_AND_MARKS:
        return name
    return f"{Path(name).name}-{blake2b(Path(name).read_bytes(), digest_size=4).hexdigest()}"


def observation(
    passages: Sequence[Passage], *, format: str, budget: int, ends: Ends, nothing_found: str, notice: str
) -> str:
    """The observation after a search, of at most `budget` tokens, closing tag and notice included.

    Passages are between <information> and its closing tag in the format `tags`, and alone in `tools`.
    """
    head, tail = ("<information>\n", "\n</information>") if format == "tags" else ("", "")
    tail += f"\n\n{notice}" if notice else ""
    if not passages:
        return head + nothing_found + tail
    lines = [f"Doc {i} (Title: {harmless(p.title)}) {harmless(p.text)}" for i, p in enumerate(passages, 1)]
    room = budget - len(ends(head + tail))
    while True:
        whole = head + "\n".join(_shared(lines, room, ends)) + tail
        over = len(ends(whole)) - budget
        # Parts of a byte-pair encoding may have more tokens together than alone.
        if over <= 0 or room <= 0:
            return whole
        room -= over


def _shared(lines: Sequence[str], room: int, ends: Ends) -> list[str]:
    """Lines cut so that together they have at most `room` tokens, each with at least its equal part."""
    tokens = [ends(line) for line in lines]
    cut = list(lines)
    by_length = sorted(range(len(lines)), key=lambda i: len(tokens[i]))
    for done, i in enumerate(by_length):
        share = max(room // (len(lines) - done), 0)
        if len(tokens[i]) > share:
            cut[i] = lines[i][: tokens[i][share - 2]] + ELLIPSIS if share > 1 else ""
        room -= min(len(tokens[i]), share)
    return cut
