"""A task's own verifier, run after the agent in a fork that the agent could not prepare.

The fork starts from the task's start state, with what the agent left outside the system folders laid over
it: programs, libraries, settings of the shell and the tests are the task's own, whatever was done to them.
Nothing that the agent started runs there. A reward that is missing, or no finite number, is an error and
never 0.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from pathlib import Path

from ..sandbox.images import give_to_sandboxes
from ..sandbox.launch import Layers
from ..sandbox.limits import Limits
from ..sandbox.sandbox import Sandbox, SandboxFailed, open_inside, open_sandbox
from .task import GradeFailed

PROTECTED = (
    *("bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "usr", "boot", "dev", "proc", "run", "sys"),
    *("tests", "solution", "oracle", "logs/verifier", "root/.*"),
    # What a package manager runs, and what pytest reads on its way from /tests to the root folder.
    *("var/lib/dpkg", "var/lib/apt", "var/cache/apt"),
    *("pytest.*", ".pytest.*", "pyproject.toml", "tox.ini", "setup.cfg", "conftest.py", "__init__.py"),
)
"""Paths whose state comes from the task and not from the agent; patterns as of glob."""
LONGEST_REWARD = 1 << 16
HARBOR, TERMINAL_BENCH = "harbor", "terminal-bench"
_PASSED = {"PASSED", "SKIPPED", "XFAIL"}
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b(?: \[\d+\])?\s+(\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verifier:
    """How a task is verified."""

    kind: str
    """harbor or terminal-bench."""
    tests: Path
    """Folder whose files are at /tests."""
    script: str
    """Path of the script below /tests."""
    limit_s: float
    cwd: str
    start: Layers
    """The start state of the task."""
    beside: Path | None = None
    """The script, where it is not among the tests."""
    network: Layers | None = None
    """What a verifier with a network needs; None: it has none."""


async def verify(sandbox: Sandbox, verifier: Verifier, limits: Limits) -> float:
    """The reward of what is in a sandbox; ends every process in it first.

    Raises:
        GradeFailed: the verifier did not end in time, or gave no reward.
    """
    given = replace(limits, command_s=verifier.limit_s)
    with tempfile.TemporaryDirectory(prefix="fewsteps-tests-") as name:
        tests = _lay_tests(Path(name), verifier)
        async with open_fork(
            sandbox, verifier.start, (tests,), limits=given, cwd=verifier.cwd, network=verifier.network
        ) as fork:
            try:
                ran = await fork.run(f"bash --login /tests/{verifier.script}", timeout_s=verifier.limit_s)
            except SandboxFailed as error:
                raise GradeFailed(f"the verifier's sandbox failed: {error}") from error
            if ran.code == 137:
                raise GradeFailed(f"the verifier was ended, after {verifier.limit_s:g} s or out of memory")
            await fork.halt()
            output = ran.output.decode("utf-8", "replace")
            return harbor_reward(fork) if verifier.kind == HARBOR else pytest_reward(output)


@asynccontextmanager
async def open_fork(
    sandbox: Sandbox,
    start: Layers,
    above: Sequence[Layers] = (),
    *,
    limits: Limits,
    cwd: str,
    network: Layers | None = None,
) -> AsyncIterator[Sandbox]:
    """A sandbox for a verifier: the start state with what the agent left over it, apart from `PROTECTED`.

    Args:
        sandbox: the agent's; every process in it is ended first.
        start: the task's start state.
        above: layers over what the agent left, the topmost last.
        limits: of the fork.
        cwd: folder that commands are run in.
        network: what a verifier with a network needs; None: it has none.
    """
    await sandbox.halt()
    with tempfile.TemporaryDirectory(prefix="fewsteps-verify-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        left = (await sandbox.snapshot(folder / "left")).root[0]
        _without_system(left)
        layers = start
        for layer in (Layers((left,)), *above, *([network] if network else [])):
            layers = layers.on_top(layer)
        async with open_sandbox(layers, limits=limits, cwd=cwd, network=network is not None) as fork:
            yield fork


def harbor_reward(fork: Sandbox) -> float:
    """The reward in /logs/verifier, reward.json before reward.txt; GradeFailed for none in [0, 1]."""
    for name in ("reward.json", "reward.txt"):
        text = _read(fork, f"logs/verifier/{name}")
        if text is not None:
            return _number(text, name)
    raise GradeFailed("the verifier wrote neither reward.json nor reward.txt to /logs/verifier")


def pytest_reward(output: str) -> float:
    """1 where every test in pytest's short summary passed or was skipped; GradeFailed where none is named."""
    results = {found[2].split(" - ")[0]: found[1] for found in _LINE.finditer(output)}
    if not results:
        raise GradeFailed(f"the verifier names no test: {' '.join(output.split())[-300:] or 'no output'}")
    return float(all(result in _PASSED for result in results.values()))


def _number(text: str, name: str) -> float:
    try:
        value = json.loads(text) if name.endswith(".json") else float(text)
    except ValueError:
        raise GradeFailed(f"{name} holds {text[:60]!r}: expected a number") from None
    if isinstance(value, dict):
        value = value.get("reward", next(iter(value.values())) if len(value) == 1 else None)
    return reward_from(value, f"{name}, which holds {text[:60]!r}")


def reward_from(value: object, where: str) -> float:
    """A reward in [0, 1]; GradeFailed for anything else, which is never taken for 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GradeFailed(f"no reward in {where}: expected a finite number")
    if not 0 <= value <= 1:
        raise GradeFailed(f"the reward is {value} in {where}: expected one from 0 to 1")
    return float(value)


def _read(fork: Sandbox, path: str) -> str | None:
    opened = open_inside(fork.root, path, os.O_RDONLY)
    if opened is None:
        return None
    with open(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        return file.read(LONGEST_REWARD).decode("utf-8", "replace")


def _without_system(written: Path) -> None:
    """Take away from a copy of what the agent wrote all that a verifier must find as it was."""
    for place in PROTECTED:
        *parents, pattern = place.split("/")
        folder = written
        for name in parents:
            folder /= name
            if os.path.lexists(folder) and not _is_folder(folder):
                _remove(folder)  # a link would lead a verifier to files of the agent's
        if _is_folder(folder):
            for name in matching(os.listdir(folder), pattern):
                _remove(folder / name)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _lay_tests(folder: Path, verifier: Verifier) -> Layers:
    folder.chmod(0o755)
    layer = folder / "root"
    (layer / "tests").mkdir(parents=True)
    if verifier.tests.is_dir():
        shutil.copytree(verifier.tests, layer / "tests", symlinks=True, dirs_exist_ok=True)
    if verifier.beside is not None:
        shutil.copy2(verifier.beside, layer / "tests" / verifier.script)
    (layer / "logs" / "verifier").mkdir(parents=True)
    give_to_sandboxes(layer)
    return Layers((layer,))
