"""Rewards from a framework's own records, read while it writes them.

    fewsteps serve RUN --rewards verifiers:outputs ...

verifiers:FOLDER  every traces.jsonl in the folder: a trace's id is its episode's key (X-Session-ID), its
                  reward the weighted sum of its scores; a trace with errors has none
harbor:JOBS       every trial's result.json: the key is TRIAL__agent, the reward the one named `reward`, or
                  the only one; a trial whose agent raised an error, or without a verdict, has none
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentloop.serve.calls import Failed, Refused
from agentloop.serve.desk import STOPPED, Desk
from agentloop.types import Reply
from occupancy.importers.files import mapping
from occupancy.importers.results.harbor import read_result
from occupancy.importers.results.verifiers import weighted_reward
from occupancy.record.errors import InputError

EVERY_S = 0.3
"""Seconds between two looks at the files."""
End = Reply | Failed
Say = Callable[[str], None]


def records_of(spec: str, say: Say) -> Traces | Trials:
    """The records that `--rewards` names; `say` is told what cannot be read."""
    kind, _, folder = spec.partition(":")
    if kind not in KINDS or not folder or Path(folder).is_file():
        raise InputError(
            f"--rewards {spec}: expected verifiers:FOLDER, where vf-eval writes its traces, or harbor:JOBS"
        )
    return KINDS[kind](Path(folder), say)


async def follow(desk: Desk, records: Traces | Trials) -> None:
    """Give the rewards in the records to their episodes, as they are written; never returns."""
    waiting: list[tuple[str, End]] = []
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


class Traces:
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


class Trials:
    """The trials of a folder of Harbor's jobs, each once."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._read: set[Path] = set()

    def new(self) -> Iterator[tuple[str, End]]:
        """Key and end of each trial that has ended since the last look."""
        for file in sorted(set(self._folder.glob("*/*/result.json")) - self._read):
            try:
                result = json.loads(file.read_bytes())
            except (OSError, ValueError, RecursionError):
                continue  # it is being written, or no result
            self._read.add(file)
            yield f"{file.parent.name}__agent", end_of_trial(mapping(result))


KINDS: dict[str, Callable[[Path, Say], Traces | Trials]] = {"verifiers": Traces, "harbor": Trials}


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
    return Failed("its trace has no reward") if reward is None else _rewarded(reward)


def end_of_trial(result: Mapping[str, Any]) -> End:
    """The reward of a trial of Harbor, or why it has none."""
    trial = read_result(result)
    rewards = trial.rewards or {}
    if trial.status != "finished":
        return Failed(trial.error[:500])
    if "reward" not in rewards and len(rewards) > 1:
        return Failed(f"its rewards are {', '.join(rewards)}: expected one, or one named reward")
    return _rewarded(rewards.get("reward", next(iter(rewards.values()))))


def _rewarded(reward: Any) -> End:
    if not isinstance(reward, int | float) or not 0 <= reward <= 1:
        return Failed(f"its reward {reward!r} is outside 0 to 1")
    return Reply("", done=True, reward=float(reward))
