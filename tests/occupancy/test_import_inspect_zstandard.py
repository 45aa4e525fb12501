"""Inspect's archives in Zstandard, its default, which zipfile reads from Python 3.14 on alone."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from occupancy.importers import formats_of, read_episodes
from occupancy.importers.episodes import ImportedEpisode, ImportSettings
from occupancy.record.errors import DataError

SAMPLE = {
    "id": "s1",
    "epoch": 2,
    "messages": [
        {"role": "user", "content": "1 and 2?"},
        {"role": "assistant", "content": "3", "model": "small"},
    ],
    "scores": {"match": {"value": "C"}},
}


def archive(members: dict[str, str], *, damage: int = 0) -> bytes:
    """A zip archive of method 93, as its specification says; `damage` is added to every checksum."""
    local, central = b"", b""
    for name, text in members.items():
        data, path = text.encode(), name.encode()
        packed = pa.compress(data, codec="zstd", asbytes=True)
        sizes = ((zlib.crc32(data) + damage) % 2**32, len(packed), len(data))
        where = len(local)
        local += struct.pack("<IHHHHHIIIHH", 0x04034B50, 63, 0, 93, 0, 0x21, *sizes, len(path), 3)
        local += path + b"???" + packed
        head = (0x02014B50, 63, 63, 0, 93, 0, 0x21, *sizes, len(path), 0, 0, 0, 0, 0, where)
        central += struct.pack("<IHHHHHHIIIHHHHHII", *head) + path
    end = (0x06054B50, 0, 0, len(members), len(members), len(central), len(local), 0)
    return local + central + struct.pack("<IHHHHIIH", *end)


def read(file: Path) -> list[ImportedEpisode]:
    return list(read_episodes(formats_of([file]), settings=ImportSettings(author="student")))


def written(folder: Path, *, damage: int = 0) -> Path:
    members = {
        "header.json": json.dumps({"eval": {"model": "small"}}),
        "samples/s1_epoch_2.json": json.dumps(SAMPLE),
    }
    file = folder / "log.eval"
    file.write_bytes(archive(members, damage=damage))
    return file


def test_samples_are_read(tmp_path: Path) -> None:
    (episode,) = read(written(tmp_path))
    assert (episode.task_id, episode.rollout, episode.R) == ("s1", 1, 1.0)
    assert [turn.text for turn in episode.turns] == ["3"]


def test_damage_is_seen(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="damaged: its length or checksum"):
        read(written(tmp_path, damage=1))
    file = written(tmp_path)
    whole = file.read_bytes()
    at = whole.index(b"\x28\xb5\x2f\xfd")
    file.write_bytes(whole[:at] + b"\0" * 8 + whole[at + 8 :])
    with pytest.raises(DataError, match="damaged"):
        read(file)


def test_an_unknown_compression_names_the_command_that_helps(tmp_path: Path) -> None:
    file = written(tmp_path)
    method, other = struct.pack("<H", 93), struct.pack("<H", 97)
    for before in (b"\x3f\0\0\0", b"\x3f\0\x3f\0\0\0"):  # in the local headers, and in the directory
        file.write_bytes(file.read_bytes().replace(before + method, before + other))
    with pytest.raises(DataError, match=r"this Python cannot read .*inspect log convert --to json"):
        read(file)
