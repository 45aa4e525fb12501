"""The journal of a served run: what the harness said, so that a killed server goes on where it was.

    RUN/serve.jsonl     one JSON object a line: an episode's beginning, an observation, a reward

Turns are not in it: they are in the ledger. A line is written whole, before it has any effect, and survives
the death of the process; a reward, which no harness sends twice, is on the disk before it is confirmed.
"""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentloop.serve.calls import Failed, HarnessCall, Said
from agentloop.types import Reply
from occupancy.record.drafts import open_file
from occupancy.record.errors import DataError, RunError
from occupancy.record.rows import Key

FILE = "serve.jsonl"


@dataclass
class Recorded:
    """An episode of the harness as the journal has it."""

    key: str
    task_id: str
    unit: Key
    """The unit's first episode."""
    nth: int
    """Which of the unit's episodes it plays, from 0."""
    first: HarnessCall
    replies: deque[Reply | Failed] = field(default_factory=deque)
    """What the harness answered to each turn."""
    also: list[str] = field(default_factory=list)
    """Keys of later episodes that went on with it."""

    @property
    def ended(self) -> bool:
        """Whether the harness has ended it."""
        return any(isinstance(reply, Failed) or reply.done for reply in self.replies)


class Journal:
    """The open journal of a run."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / FILE
        self._handle = os.fdopen(open_file(self.file, os.O_CREAT | os.O_APPEND), "ab", buffering=0)

    def recorded(self) -> list[Recorded]:
        """The episodes of the file, in the order in which they began; to be read before it is written."""
        return list(_read(self.file))

    def began(self, episode: Recorded) -> None:
        """A harness's episode has a part to play."""
        call = {"messages": episode.first.messages, "tools": episode.first.has_tools}
        unit = [episode.unit.kind, episode.unit.rollout, episode.unit.continuation]
        where = {"key": episode.key, "task": episode.task_id, "unit": unit, "nth": episode.nth}
        self._write(where | call)

    def taken_over(self, key: str, by: str) -> None:
        """A later episode goes on with one that its harness has given up."""
        self._write({"key": key, "also": by})

    def replied(self, key: str, reply: Reply | Failed) -> None:
        """The harness has answered a turn, or ended the episode."""
        if isinstance(reply, Failed):
            self._write({"key": key, "failed": reply.why})
            return
        line: dict[str, Any] = {"key": key, "observation": reply.observation, "role": reply.role}
        self._write(line | ({"reward": reply.reward} if reply.done else {}))

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with self._room():
            os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        end = os.fstat(self._handle.fileno()).st_size
        with self._room():
            if self._handle.write(data) < len(data):
                os.ftruncate(self._handle.fileno(), end)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self.file} cannot be written ({error}): make room on the disk, and go on"
            ) from error


def _read(file: Path) -> Iterator[Recorded]:
    """Every episode of the journal; a last line that a kill has cut is taken off."""
    episodes: dict[str, Recorded] = {}
    whole = file.read_bytes()
    if whole and not whole.endswith(b"\n"):
        whole = whole[: whole.rfind(b"\n") + 1]
        os.truncate(file, len(whole))
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            given = json.loads(line)
            if "unit" in given:
                first = HarnessCall(tuple(Said(*said) for said in given["messages"]), given["tools"])
                kind, rollout, continuation = given["unit"]
                unit = Key(kind, given["task"], rollout, continuation=continuation)
                episodes[given["key"]] = Recorded(given["key"], given["task"], unit, given["nth"], first)
            elif "also" in given:
                episodes[given["key"]].also.append(given["also"])
            elif "failed" in given:
                episodes[given["key"]].replies.append(Failed(given["failed"]))
            else:
                reward = given.get("reward")
                reply = Reply(given["observation"], "reward" in given, reward, role=given["role"])
                episodes[given["key"]].replies.append(reply)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{file}, line {number} cannot be read ({type(error).__name__}: {error}): restore the file, "
                f"or serve into a new folder"
            ) from error
    yield from episodes.values()
