"""Files as JSON records with their places: lines or one document, plain, .gz or .zst, in bounded memory.

Nothing is guessed about broken files: bytes that are no UTF-8, names that occur twice in an object, NaN,
nesting that is too deep, and lines or documents above a limit are refused with file and line. Numbers keep
the text that they were written in, for the arguments of tool calls.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from occupancy.record.errors import DataError

LINE_MB = 64
"""Longest line, uncompressed. A line is in memory as a whole."""
DOCUMENT_MB = 256
"""Largest file that is one JSON document, uncompressed."""
_BLOCK = 1 << 20
_GZIP, _ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

Progress = Callable[[int], None]
"""Called with the bytes of a file that were read since the last call, as they are on disk."""


class Place:
    """The place of a record in a file, for error messages."""

    def __init__(self, file: Path, record: str = "whole file") -> None:
        self.file, self.record = file, record

    def __str__(self) -> str:
        return f"{self.file}, {self.record}"

    def refuse(self, reason: str) -> DataError:
        """The error for what is wrong here, in one line."""
        return DataError(" ".join(f"{self}: {reason}".split()))

    def within(self, part: str) -> Place:
        """A place inside this one."""
        return Place(self.file, f"{self.record}, {part}")


class Number(float):
    """A number that is written as it was read: 1e3 stays 1e3."""

    text: str

    def __new__(cls, text: str) -> Number:
        """The number of a JSON text."""
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse(text: str, place: Place) -> Any:
    """The value of a JSON text."""

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise place.refuse(f"the name {twice!r} is twice in one object: remove one")
        return found

    def no_number(name: str) -> Any:
        raise place.refuse(f"{name} is no JSON number: write null where there is none")

    try:
        return json.loads(text, object_pairs_hook=whole, parse_float=Number, parse_constant=no_number)
    except DataError:
        raise
    except ValueError as error:
        raise place.refuse(f"not JSON ({error})") from error
    except RecursionError as error:
        raise place.refuse("nested too deeply: expected fewer than about 900 levels") from error


def mapping(value: Any) -> Mapping[str, Any]:
    """An object of a record; an empty one where there is another value or none."""
    return value if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """A list of a record; an empty one where there is another value or none."""
    return value if isinstance(value, list) else []


def first_of(record: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields, as `field_of` finds them, that is not null; None where none is."""
    return next((value for name in names if (value := field_of(record, name)) is not None), None)


def field_of(record: Any, name: str) -> Any:
    """The value of a field, or of `a.b` inside another; None where there is none."""
    if not isinstance(record, Mapping):
        return None
    if name in record:
        return record[name]
    first, dot, rest = name.partition(".")
    return field_of(record.get(first), rest) if dot else None


def without(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The record without these fields."""
    return {name: value for name, value in record.items() if name not in names}


def lines(*texts: str | None) -> str:
    """The texts that are not empty, one below the other."""
    return "\n".join(filter(None, texts))


def json_text(value: Any) -> str:
    """A value as a JSON text in one line, numbers as they were read."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_text(str(k))}: {json_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def json_records(file: Path, progress: Progress | None = None) -> Iterator[tuple[Any, Place]]:
    """Records of a file: a line each, or the items of one list, or one object over several lines."""
    whole, rest = Place(file), _lines(file, progress)
    first = next(rest, None)
    if first is None:
        return
    if not _is_document(first[1]):
        for number, line in chain([first], rest):
            place = Place(file, f"line {number}")
            yield parse(line, place), place
        return
    document = parse(_joined(first[1], rest, whole), whole)
    if isinstance(document, list):
        for index, record in enumerate(document, start=1):
            yield record, Place(file, f"record {index}")
    else:
        yield document, whole


def json_document(file: Path, progress: Progress | None = None) -> tuple[Any, Place]:
    """The value of a file that is one JSON document."""
    whole, rest = Place(file), _lines(file, progress)
    _, first = next(rest, (1, ""))
    return parse(_joined(first, rest, whole), whole), whole


def json_objects(file: Path, progress: Progress | None = None) -> Iterator[tuple[dict[str, Any], Place]]:
    """Records of a file that must all be objects."""
    for record, place in json_records(file, progress):
        if not isinstance(record, dict):
            raise place.refuse(f"a {type(record).__name__}: expected an object")
        yield record, place


def head_of(file: Path, size: int = _BLOCK) -> bytes:
    """The first bytes of a file, uncompressed."""
    with file.open("rb") as raw, _plain(raw, file) as data:
        return _read(data, file, 1)[:size]


def _is_document(line: str) -> bool:
    """Whether a first line opens a list, or an object that continues in the next line."""
    text = line.strip()
    return text.startswith("[") or (text.startswith("{") and text.endswith(("{", "[", ",")))


def _joined(first: str, rest: Iterator[tuple[int, str]], whole: Place) -> str:
    parts, size = [first], len(first)
    for _, line in rest:
        parts.append(line)
        size += len(line)
        if size > DOCUMENT_MB << 20:
            raise whole.refuse(
                f"one document of more than {DOCUMENT_MB} MB: write one record a line (JSON Lines)"
            )
    return "\n".join(parts)


def _lines(file: Path, progress: Progress | None) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers from 1."""
    rest, number, seen = bytearray(), 0, 0
    with file.open("rb") as raw, _plain(raw, file) as data:
        while block := _read(data, file, number + 1):
            if progress is not None:
                progress(raw.tell() - seen)
                seen = raw.tell()
            *whole, last = block.split(b"\n")
            for part in whole:
                rest += part
                number += 1
                if text := _decoded(rest, file, number):
                    yield number, text
                rest.clear()
            rest += last
            is_list = number == 0 and rest.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"[")
            most = DOCUMENT_MB if is_list else LINE_MB
            if len(rest) > most << 20:
                raise Place(file, f"line {number + 1}").refuse(
                    f"longer than {most} MB: expected one conversation a line (JSON Lines)"
                )
        if text := _decoded(rest, file, number + 1):
            yield number + 1, text


def _decoded(data: bytearray, file: Path, number: int) -> str:
    if number == 1 and data.startswith(b"\xef\xbb\xbf"):
        del data[:3]
    try:
        return data.decode("utf-8").rstrip("\r") if data.strip() else ""
    except UnicodeDecodeError as error:
        raise Place(file, f"line {number}").refuse(
            f"not UTF-8 (byte {data[error.start]:#04x} at {error.start + 1}): convert the file, for example "
            f"iconv -f latin1 -t utf-8"
        ) from error


def _read(data: BinaryIO, file: Path, line: int) -> bytes:
    try:
        return bytes(data.read(_BLOCK))
    except (OSError, EOFError, zlib.error) as error:
        raise Place(file, f"line {line}").refuse(f"the compressed file is broken ({error})") from error


def _plain(raw: BinaryIO, file: Path) -> Any:
    """The bytes of an open file, uncompressed; compression is seen in the first bytes, not in the name."""
    import pyarrow as pa

    start = raw.read(4)
    raw.seek(0)
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=raw)
    if start == _ZSTANDARD:
        return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    return nullcontext(raw)
