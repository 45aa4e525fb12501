"""Tasks from plain language to bash, with a checker that runs: equal output and equal changed files.

A task asks for something of a small file system; a reference command says what is right. The reference is run
twice, in sandboxes of its own, in the same image and the same kind of terminal: what it does there is the
expected result, so that no machine's particulars are compared with another's. Where its two outputs differ,
or tell the time of day at which they were made, the other lines that both have are compared.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from pathlib import Path

from agentloop.environments.task_specs import HOW_TO_GET, data_folder
from agentloop.types import Task
from occupancy.importers.files import json_objects
from occupancy.record.reading import reading

from ..sandbox.changes import find_changes
from ..sandbox.images import Image, unpacked
from ..sandbox.launch import Layers
from ..sandbox.limits import Limits
from ..sandbox.sandbox import Sandbox, open_sandbox
from ..terminus.screen import Screen, open_screen
from .dockerfile import Built
from .task import SCRATCH, Expected, TerminalTask, in_sandbox

VERSION = "nl2bash-3"
TEST_SHARE = 3
"""One of so many clusters is in `test`."""
LATE_S = 0.1
"""Seconds in which processes in the background may still print."""
_MACHINERY = re.compile(r"/run/terminal\b|tmux|^[│├└─ ]*\([^)]*\)$")
INSTRUCTION = """{query}

You are at / of a small file system. Two things count: the files that are changed in the end, /tmp apart, and
what the last command line prints. So where an output is asked for, let the command that prints it be the
last one, and print nothing else with it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of nl2bash.jsonl."""

    id: str
    fs: int
    query: str
    gold: str
    usable: bool


class NaturalLanguageToBash:
    """The usable tasks of nl2bash.jsonl; a `TaskSet`.

    A cluster is a reference command on a file system: several tasks may ask for the same in other words. Of
    the clusters, those whose BLAKE2b hash is divisible by three are `test`, the others `train`.
    """

    def __init__(self, folder: Path, image: Image, *, limits: Limits) -> None:
        self.version = VERSION
        self._folder, self._image, self._limits = folder, image, limits
        self.lines = {line.id: line for line in _lines(folder / "nl2bash.jsonl") if line.usable}
        self.tasks: Mapping[str, Task] = {line.id: _task(line) for line in self.lines.values()}
        self._expected: dict[str, asyncio.Task[Expected]] = {}

    def open(self, task_id: str) -> TerminalTask:
        """A task, ready to be played."""
        line = self.lines[task_id]

        async def expected() -> Expected:
            known = self._expected.get(task_id)
            if known is None or known.cancelled() or (known.done() and known.exception()):
                known = asyncio.ensure_future(self._run_reference(line))
                self._expected[task_id] = known
            return await asyncio.shield(known)

        async def solved(sandbox: Sandbox, screen: Screen) -> bool:
            return solves(await _result(sandbox, await screen.last_output()), await expected())

        async def grade(sandbox: Sandbox, screen: Screen) -> float:
            return float(solves(await _left(sandbox, screen), await expected()))

        async def start() -> Built:
            return Built(self._layers(line), "/")

        return TerminalTask(
            INSTRUCTION.format(query=line.query),
            in_sandbox(start, grade, solved, limits=self._limits),
            reference=line.gold,
            expected=expected,
        )

    def _layers(self, line: Line) -> Layers:
        archive = self._folder / f"fs_{line.fs}.tar.xz"
        if not archive.exists():
            return self._image.layers
        return self._image.layers.on_top(Layers((unpacked(archive),)))

    async def _run_reference(self, line: Line) -> Expected:
        began = time.time()
        # Both end, whatever happens to one of them: none is left behind in a sandbox.
        runs = [asyncio.ensure_future(self._run_once(line)) for _ in range(2)]
        await asyncio.gather(*runs, return_exceptions=True)
        one, other = (run.result() for run in runs)
        return expected_of(one, other, began=began, ended=time.time())

    async def _run_once(self, line: Line) -> Expected:
        async with open_sandbox(self._layers(line), limits=self._limits) as sandbox:
            screen = await open_screen(sandbox)
            await screen.type(typed(line.gold), 0)
            reads = not screen.at_prompt()
            if reads:
                await screen.type("C-d", 0)
            return replace(await _left(sandbox, screen), reads=reads)


def expected_of(one: Expected, other: Expected, *, began: float, ended: float) -> Expected:
    """What is compared, after two runs of a reference between two times in seconds since 1970.

    A file that was made in a run is listed with hour and minute: two runs in one minute agree on it, an
    episode a minute later does not.
    """
    minutes = range(int(began) // 60, int(ended) // 60 + 1)
    clock = {time.strftime("%H:%M", time.gmtime(60 * m)) for m in minutes}  # a sandbox's time zone is UTC
    common = Counter(_split(one)) & Counter(_split(other))
    stable = [line for line in common.elements() if not any(minute in line for minute in clock)]
    if one.printed == other.printed and len(stable) == len(_split(one)):
        return one
    return replace(one, stable=tuple(sorted(stable)))


async def _left(sandbox: Sandbox, screen: Screen) -> Expected:
    """What is there in the end; ends every process inside."""
    await asyncio.sleep(LATE_S)
    # Read before anything is ended: the terminal's log goes with its processes.
    printed = await screen.last_output()
    await sandbox.halt()
    return await _result(sandbox, printed)


async def _result(sandbox: Sandbox, printed: str | None) -> Expected:
    """What an episode left, where nothing inside runs: files, and what its last command line printed."""
    found = await asyncio.to_thread(find_changes, sandbox)
    changed, written = (
        {path: told for path, told in part.items() if not path.startswith(SCRATCH)}
        for part in (found.changed, found.written)
    )
    return Expected(changed, None if printed is None else normalised(printed), written=written)


def solves(result: Expected, expected: Expected) -> bool:
    """Whether an episode did what the reference command does."""
    if result.changed != expected.changed:
        return False
    if expected.stable is not None:
        return bool(result.printed) and not Counter(expected.stable) - Counter(_split(result))
    if expected.printed:
        return result.printed == expected.printed
    return bool(expected.changed) or (result.printed == "" and result.written == expected.written)


def _split(result: Expected) -> list[str]:
    return (result.printed or "").splitlines()


def normalised(printed: str) -> str:
    """An output without differences that nobody means: blank lines, and how wide a gap between words is.

    Lines about the terminal's own processes are left out as well: these come and go.
    """
    lines = (" ".join(line.split()) for line in printed.replace("\r", "\n").split("\n"))
    return "\n".join(line for line in lines if line and not _MACHINERY.search(line))


def typed(command: str) -> str:
    """A command as keystrokes; a tab is quoted, so that the shell completes nothing."""
    return command.replace("\t", "\x16\t") + "\n"


def find_data() -> Path:
    """The folder of the tasks: `terminal` in the folder that FEWSTEPS_DATA names, or that folder itself."""
    file = "nl2bash.jsonl"
    return data_folder("terminal", lambda folder: (folder / file).is_file(), expected=file)


def _lines(file: Path) -> list[Line]:
    names = [field.name for field in fields(Line)]
    found = []
    with reading(file, then=HOW_TO_GET["terminal"]):
        for row, place in json_objects(file):
            if missing := [name for name in names if name not in row]:
                raise place.refuse(f"no {missing[0]}: expected {', '.join(names)}")
            found.append(Line(**{name: row[name] for name in names}))
    return found


def _task(line: Line) -> Task:
    digest = blake2b(f"{line.fs}:{line.gold}".encode(), digest_size=8).digest()
    split = "test" if int.from_bytes(digest, "big") % TEST_SHARE == 0 else "train"
    return Task(line.id, f"fs{line.fs}-{digest.hex()[:8]}", split, kind=f"fs{line.fs}")
