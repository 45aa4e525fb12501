"""Rewards from a framework's own records, read while it writes them.

    fewsteps serve RUN --rewards verifiers:outputs ...

verifiers:FOLDER  every traces.jsonl in the folder: a trace's id is its episode's key (X-Session-ID), its
                  reward the weighted sum of its scores; a trace with errors has none
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agentloop.serve.calls import Failed, Refused
from agentloop.serve.desk import STOPPED, Desk
from agentloop.types import Reply
from occupancy.importers.verifiers import weighted_reward
from occupancy.record.errors import InputError

EVERY_S = 0.3
"""Seconds between two looks at the files."""
End = Reply | Failed
Say = Callable[[str], None]


def read_spec(spec: str) -> Path:
    """The folder that `--rewards` names."""
    kind, colon, folder = spec.partition(":")
    if kind != "verifiers" or not colon or not folder:
        raise InputError(f"--rewards {spec}: expected verifiers:FOLDER, where vf-eval writes its traces")
    return Path(folder)


async def follow(desk: Desk, folder: Path, *, say: Say) -> None:
    """Give the rewards in the folder's records to their episodes, as they are written; never returns."""
    records, waiting = Records(folder, say), []
    while True:
        waiting += await asyncio.to_thread(lambda: list(records.new()))
        waiting = [(key, end) for key, end in waiting if not _given(desk, key, end)]
        await asyncio.sleep(EVERY_S)


def _given(desk: Desk, key: str, end: End) -> bool:
    try:
        desk.end_of(key, end)
    except Refused as refused:
        return refused.code != STOPPED.code
    return True


class Records:
    """The traces of a folder, each once; what cannot be read is said."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder, self._say = folder, say
        self._read: dict[Path, int] = {}

    def new(self) -> Iterator[tuple[str, End]]:
        """Key and end of each episode that was written since the last look."""
        for file in sorted(self._folder.rglob("traces.jsonl")):
            try:
                lines = self._new_lines(file)
            except OSError as error:
                self._say(f"{file} cannot be read ({error}): rewards in it are not given")
                continue
            for line in lines:
                try:
                    yield from list(_ends(line))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    what = f"{type(error).__name__}: {error}"
                    self._say(f"a record of {file} cannot be read ({what}): give its reward by POST")

    def _new_lines(self, file: Path) -> list[bytes]:
        with file.open("rb") as handle:
            handle.seek(self._read.get(file, 0))
            given = handle.read()
        whole = given[: given.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(whole)
        return whole.splitlines()


def _ends(line: bytes) -> Iterator[tuple[str, End]]:
    record = json.loads(line)
    for trace in record.get("traces", [record]):
        yield str(trace["id"]), end_of(trace)


def end_of(trace: dict[str, Any]) -> End:
    """The reward of a trace of verifiers 0.4, or why it has none."""
    if trace.get("errors"):
        told = trace["errors"][0]
        said = told.get("message") or told.get("type") if isinstance(told, dict) else told
        return Failed(" ".join(str(said).split())[:500])
    reward = weighted_reward(trace["rewards"])
    if reward is None:
        return Failed("its trace has no reward")
    if not 0 <= reward <= 1:
        return Failed(f"its reward {reward:g} is outside 0 to 1")
    return Reply("", done=True, reward=reward)
