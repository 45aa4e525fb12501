"""What an import remembers of earlier episodes, in a temporary file: memory does not grow with the files."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable
from typing import Any

CACHE_KB = 4096
"""Kept in memory; what is beyond is on the disk until the import ends."""


class Seen:
    """Values by key; keys are texts or whole numbers of 64 bits."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        weakref.finalize(self, self._db.close)
        for name, value in (("journal_mode", "off"), ("synchronous", "off"), ("cache_size", -CACHE_KB)):
            self._db.execute(f"pragma {name} = {value}")
        self._db.execute("create table seen (key primary key, value) without rowid")
        self._db.execute("begin")

    def get(self, key: str | int, default: Any = None) -> Any:
        """The value of a key."""
        row = self._db.execute("select value from seen where key = ?", (key,)).fetchone()
        return default if row is None else row[0]

    def put(self, key: str | int, value: str | int) -> None:
        """Set the value of a key."""
        self._db.execute("insert or replace into seen values (?, ?)", (key, value))

    def add(self, keys: Iterable[str | int], value: str | int) -> None:
        """Set the value of those keys that have none."""
        self._db.executemany("insert or ignore into seen values (?, ?)", ((key, value) for key in keys))

    def __contains__(self, key: str | int) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        (count,) = self._db.execute("select count(*) from seen").fetchone()
        return int(count)
