"""A task's own verifier, run after the agent in a fork that the agent could not prepare.

The fork starts from the task's start state, with what the agent left outside the system folders laid over
it: programs, libraries, settings of the shell and the tests are the task's own, whatever was done to them.
Nothing that the agent started runs there. A reward that is missing, or no finite number, is an error and
never 0.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from fnmatch import filter as matching
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from occupancy.record.errors import InputError

from ..sandbox.images import give_to_sandboxes, network_layer
from ..sandbox.launch import Layers
from ..sandbox.limits import Limits, copies_prefix, remove_copies
from ..sandbox.sandbox import Sandbox, SandboxFailed, open_sandbox, tail_inside
from .dockerfile import ELSEWHERE, Built
from .task import GradeFailed

if TYPE_CHECKING:
    from .folders import Folder

PROTECTED = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "usr", "boot", "dev", "proc", "run", "sys"),
    *("tests", "solution", "oracle", "logs/verifier", "root/.*"),
    # What a package manager runs, and what pytest reads on its way from /tests to the root folder.
    *("var/lib/dpkg", "var/lib/apt", "var/cache/apt"),
    *("pytest.*", ".pytest.*", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py", "__init__.py"),
)
"""Paths whose state comes from the task and not from the agent; patterns as of glob."""
LONGEST_TEXT = 1 << 20
"""Bytes of a reward, or of the end of a verifier's output, that are read."""
OUTPUT = "logs/verifier/test-stdout.txt"
"""Where a verifier's output goes, below the root folder; Harbor's name for it."""
SUMMARY = "short test summary info"
HARBOR, TERMINAL_BENCH = "harbor", "terminal-bench"
_PASSED = {"PASSED", "SKIPPED", "XFAIL"}
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b(?: \[\d+\])?\s+(\S.*)$", re.MULTILINE)


def verifiable(start: Built, *, of: Path) -> Built:
    """The start state; InputError where a verifier would take its working folder from the task."""
    if start.cwd.split("/")[1] in PROTECTED:
        where = f"{of}: WORKDIR {start.cwd}"
        raise InputError(f"{where}: what an agent leaves there cannot be verified here; {ELSEWHERE}")
    return start


async def verify(sandbox: Sandbox, task: Folder, start: Built, *, limits: Limits, network: bool) -> float:
    """The reward of what is in the agent's sandbox; ends every process in it first.

    Raises:
        GradeFailed: the verifier did not end in time, or gave no reward.
    """
    harbor = task.kind == HARBOR
    script = "test.sh" if harbor else "run-tests.sh"
    with tempfile.TemporaryDirectory(prefix=copies_prefix("tests")) as name:
        tests = _lay_tests(Path(name), task.place, script)
        async with open_fork(sandbox, start, (tests,), limits=limits, network=network) as fork:
            try:
                # Scripts of Terminal-Bench read the folder of the tests from this variable.
                command = f"TEST_DIR=/tests bash --login /tests/{script} > /{OUTPUT} 2>&1"
                ran = await fork.run(command, timeout_s=task.verifier_s)
            except SandboxFailed as error:
                raise GradeFailed(f"the verifier's sandbox failed: {error}") from error
            if ran.code == 137:
                raise GradeFailed(f"the verifier was ended, after {task.verifier_s:g} s or out of memory")
            await fork.halt()
            return harbor_reward(fork) if harbor else pytest_reward(_read(fork, OUTPUT) or "")


@asynccontextmanager
async def open_fork(
    sandbox: Sandbox, start: Built, above: Sequence[Layers] = (), *, limits: Limits, network: bool
) -> AsyncIterator[Sandbox]:
    """A sandbox for a verifier: `start`, over it what the agent left, over that `above`, the topmost last.

    `PROTECTED` and programs on the PATH of the task's Dockerfile stay the task's own. Every process in the
    agent's sandbox is ended first.
    """
    await sandbox.halt()
    folder = Path(tempfile.mkdtemp(prefix=copies_prefix("verify")))
    try:
        folder.chmod(0o755)
        left = (await sandbox.snapshot(folder / "left")).root[0]
        await _without(left, (*PROTECTED, *_on_path(start.path, start.cwd)))
        layers = start.layers
        for layer in (Layers((left,)), *above, *([network_layer()] if network else [])):
            layers = layers.on_top(layer)
        async with open_sandbox(layers, limits=limits, network=network) as fork:
            await fork.enter(start.cwd)  # the agent may have removed it
            yield fork
    finally:
        await asyncio.to_thread(remove_copies, folder)


def harbor_reward(fork: Sandbox) -> float:
    """The reward in /logs/verifier, reward.json before reward.txt; GradeFailed for none in [0, 1]."""
    for name in ("reward.json", "reward.txt"):
        text = _read(fork, f"logs/verifier/{name}")
        if text is None:
            continue
        try:
            value = json.loads(text) if name.endswith(".json") else float(text)
        except (ValueError, RecursionError):
            raise GradeFailed(f"{name} holds {text[:60]!r}: expected a number") from None
        if isinstance(value, dict):
            value = value.get("reward", next(iter(value.values())) if len(value) == 1 else None)
        return reward_from(value, f"{name}, which holds {text[:60]!r}")
    raise GradeFailed("the verifier wrote neither reward.json nor reward.txt to /logs/verifier")


def pytest_reward(output: str) -> float:
    """1 where every test in pytest's short summary passed or was skipped; GradeFailed where none is named.

    A test that is named twice has passed if both lines say so: a program that prints PASSED hides nothing.
    """
    _, header, summary = output.partition(SUMMARY)
    results = [found[1] for found in _LINE.finditer(summary if header else output)]
    if not results:
        raise GradeFailed(f"the verifier names no test: {' '.join(output.split())[-300:] or 'no output'}")
    return float(all(result in _PASSED for result in results))


def reward_from(value: object, where: str) -> float:
    """A reward in [0, 1]; GradeFailed for anything else, which is never taken for 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GradeFailed(f"no reward in {where}: expected a finite number")
    if not 0 <= value <= 1:
        raise GradeFailed(f"the reward is {value} in {where}: expected one from 0 to 1")
    return float(value)


def _read(fork: Sandbox, path: str) -> str | None:
    """The last part of a file; None where there is no plain file."""
    found = tail_inside(fork.root, path, LONGEST_TEXT)
    return None if found is None else found[1].decode("utf-8", "replace")


def _on_path(variable: str, cwd: str) -> Iterator[str]:
    """Folders of programs on a task's PATH, with their libraries, as patterns; none that holds the work."""
    for place in filter(None, variable.split(":")):
        folder = Path("/", os.path.normpath(place))
        prefix = folder.parent if folder.name in ("bin", "sbin") and len(folder.parts) > 3 else folder
        if len(prefix.parts) > 1 and not (prefix.is_relative_to(cwd) or Path(cwd).is_relative_to(prefix)):
            yield escape(str(prefix).strip("/"))


async def _without(written: Path, patterns: Sequence[str]) -> None:
    """Take away from a copy of what the agent wrote all that a verifier must find as it was."""
    for pattern in patterns:
        *parents, last = pattern.split("/")
        folder = written
        for name in parents:
            folder /= name
            if os.path.lexists(folder) and not _is_folder(folder):
                folder.unlink()  # a link would lead a verifier to files of the agent's
        if _is_folder(folder):
            folder.chmod(folder.stat().st_mode | 0o700)  # for an ordinary user, who may not look otherwise
            left = (folder / name for name in matching(os.listdir(folder), last))
            await asyncio.to_thread(remove_copies, *left)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _lay_tests(folder: Path, task: Path, script: str) -> Layers:
    folder.chmod(0o755)
    layer = folder / "root"
    (layer / "tests").mkdir(parents=True)
    if (task / "tests").is_dir():
        shutil.copytree(task / "tests", layer / "tests", symlinks=True, dirs_exist_ok=True)
    if not (task / "tests" / script).exists():
        shutil.copy2(task / script, layer / "tests" / script)
    (layer / "logs" / "verifier").mkdir(parents=True)
    give_to_sandboxes(layer)
    return Layers((layer,))
