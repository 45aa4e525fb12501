"""Files damaged at random, as a disk, an editor or an enemy would damage them; each number is one damage."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

HOSTILE = [
    *(b"nan", b"inf", b"-inf", b"NaN", b"Infinity", b"-1", b"0", b"1e999", b"1e26", b"1.5", b"true", b"null"),
    *(
        b'""',
        b'"x"',
        b"[]",
        b"{}",
        b"[[1]]",
        b'{"a": 1}',
        b'"\\ud800"',
        b'"\\u0000"',
        b"9" * 400,
        b"2024-01-01",
    ),
    *(str(2**31).encode(), str(2**63).encode(), str(-(2**63)).encode(), b"[" * 100_000, b'{"a":' * 50_000),
]
"""Values where others are expected."""
_OTHERS = (None, True, 0, -1, 1.5, 10**400, "", "x", "\ud800", [], [[]], ["x"], [1], {}, {"x": 1}, [{}])
"""The same, as JSON values."""
_VALUE = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d[\d.eE+-]*|\btrue\b|\bfalse\b|\bnull\b|\[[^\[\]]*\]')


def mutated(data: bytes, number: int) -> bytes:
    """The file with damage `number`: values replaced, bytes flipped, spans lost, doubled or put elsewhere."""
    rng = random.Random(number)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(DAMAGES)(data, rng)
    return data


def _value(data: bytes, rng: random.Random) -> bytes:
    places = [found.span() for found in _VALUE.finditer(data[:200_000])]
    if not places:
        return _flip(data, rng)
    start, stop = rng.choice(places)
    return data[:start] + rng.choice(HOSTILE) + data[stop:]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return b"\xff"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 32, 500)))


def _lose(data: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:start] + data[stop:]


def _double(data: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    return data[:stop] + data[start:]


def _move(data: bytes, rng: random.Random) -> bytes:
    start, stop = _span(data, rng)
    rest = data[:start] + data[stop:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + data[start:stop] + rest[at:]


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _line(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    lines.pop(rng.randrange(len(lines)))
    return b"\n".join(lines)


def _noise(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"\xff\xfe", b"\0", b"\xef\xbb\xbf", rng.randbytes(8))) + data[at:]


def _node(data: bytes, rng: random.Random) -> bytes:
    """One value of a JSON document or line, however deep, lost, doubled, or replaced by another."""
    lines = data.split(b"\n")
    whole = rng.random() < 0.5
    at = rng.randrange(len(lines))
    try:
        value = json.loads(data if whole else lines[at])
    except (ValueError, RecursionError):
        return _value(data, rng)
    root: Any = [value]
    holder, place = root, 0
    while isinstance(holder[place], dict | list) and holder[place] and rng.random() < 0.8:
        holder = holder[place]
        place = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    kind = rng.random() if holder is not root else 1.0
    if kind < 0.2:
        del holder[place]
    elif kind < 0.3 and isinstance(holder, list):
        holder.insert(place, holder[place])
    else:
        holder[place] = rng.choice(_OTHERS)
    text = json.dumps(root[0] if root else None).encode()
    return text if whole else b"\n".join([*lines[:at], text, *lines[at + 1 :]])


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_value, _value, _value, _node, _node, _node, _flip, _lose, _double, _move, _cut, _line, _noise),
)
