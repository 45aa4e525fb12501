"""Files damaged at random, as a disk, an editor or an enemy would damage them; each number is one damage."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

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


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_value, _value, _value, _value, _flip, _lose, _double, _move, _cut, _line, _noise),
)
