"""One trial of Harbor that fewsteps plays through: `harbor run` as a subprocess, with `Relay` as its agent.

So every environment of Harbor (Docker, and services for containers) is a backend of `--env terminal`. Harbor
builds and starts the container, applies the task's time limits and runs its verifier. The turns are played
here, through a local socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agentloop.types import EnvironmentFailed
from occupancy.importers.results.harbor import read_result
from occupancy.record.errors import InputError, install_command

from ..sandbox.limits import copies_prefix
from ..sandbox.sandbox import Ran
from ..tasks.folders import Folder, read_folder
from ..tasks.task import GradeFailed, Place, TerminalTask
from ..tasks.verifier import HARBOR, reward_from
from ..terminus.elsewhere import open_screen_elsewhere

PROGRAM = "FEWSTEPS_HARBOR"
"""Variable with the path of the program `harbor`, which is in a Python of its own."""
AGENT = "agentloop.environments.terminal.harbor.agent:Relay"
LONGEST_LINE = 64 << 20
"""Bytes of one line: a command's output in JSON."""
START_S = 1800.0
"""Seconds for building an image and starting its container."""
END_S = 900.0
"""Seconds for ending a container, over the verifier's own."""


@dataclass(frozen=True, slots=True)
class Harbor:
    """How trials are started."""

    program: str
    environment: str
    """docker, another name that Harbor knows, or module:Class."""
    variables: Mapping[str, str]

    @property
    def version(self) -> str:
        """Harbor's version and the environment, part of a run's version."""
        done = subprocess.run(
            [self.program, "--version"], capture_output=True, text=True, check=False, env=dict(self.variables)
        )
        if done.returncode:
            raise InputError(f"{self.program} --version failed: {done.stderr.strip()[-300:]}")
        return f"harbor-{done.stdout.strip()} in {self.environment}"


def find_harbor(environment: str) -> Harbor:
    """The program `harbor`, from FEWSTEPS_HARBOR or the PATH; InputError where there is none."""
    program = os.environ.get(PROGRAM) or shutil.which("harbor")
    if not program or not os.access(program, os.X_OK):
        raise InputError(
            f"harbor={environment}: {program or 'harbor'} is no program: in a Python >= 3.12 of its own run "
            f"pip install harbor and {install_command('terminal')}, and name its bin/harbor in {PROGRAM}"
        )
    source = str(Path(__file__).parents[4])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    telemetry = os.environ.get("HARBOR_TELEMETRY", "off")
    ours = {"HARBOR_TELEMETRY": telemetry, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    if "site-packages" not in source:  # a checkout: Harbor's Python imports the agent from it
        ours["PYTHONPATH"] = os.pathsep.join([source, *paths])
    return Harbor(program, environment, {**os.environ, **ours})


class HarborTasks:
    """Folders of Harbor's format, each played in an environment of Harbor; a `TaskSet`."""

    def __init__(
        self, place: Path, harbor: Harbor, *, benchmark: str = "", timeout_factor: float = 1.0
    ) -> None:
        self._harbor, self._timeout_factor = harbor, timeout_factor
        self._folders, self.tasks, version = read_folder(place, benchmark)
        if other := next((f.place for f in self._folders.values() if f.kind != HARBOR), None):
            raise InputError(f"{other}: Harbor plays tasks with a task.toml; `harbor task migrate` makes one")
        self.version = f"{version} {harbor.version}"

    def open(self, task_id: str) -> TerminalTask:
        """A task, ready to be played."""
        folder = self._folders[task_id]
        opened = partial(open_trial, self._harbor, folder, timeout_factor=self._timeout_factor)
        return TerminalTask(folder.instruction, opened)


class Trial:
    """A running trial as a machine that runs commands."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self.connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.get_running_loop().create_future()
        )

    async def run(self, command: str) -> Ran:
        """Run a command; code 1 without output where Harbor has ended the agent, at its time limit say."""
        reader, writer = self.connected.result()
        with suppress(OSError):
            await sent(writer, {"run": command})
            if (told := await said(reader)) is not None:
                return Ran(str(told.get("output", "")).encode(), int(told.get("code", 1)))
        return Ran(b"", 1)

    async def reward(self, verifier_s: float) -> float:
        """End the agent, wait for the verifier, and read the reward.

        Raises:
            GradeFailed: there is none that is a number from 0 to 1; the message says what Harbor recorded.
        """
        _, writer = self.connected.result()
        with suppress(OSError):
            await sent(writer, {"end": True})
        writer.close()
        try:
            await asyncio.wait_for(self._process.wait(), verifier_s + END_S)
        except TimeoutError:
            raise GradeFailed(f"Harbor did not end in {verifier_s + END_S:g} s") from None
        results = sorted((self._folder / "jobs").glob("*/*/result.json"))
        if not results:
            raise GradeFailed(f"Harbor wrote no result: {self.said()}")
        found = read_result(json.loads(results[0].read_text("utf-8")))
        if found.rewards is None or "reward" not in found.rewards:
            raise GradeFailed(f"Harbor recorded no reward: {found.error}")
        return reward_from(found.rewards["reward"], "Harbor's result.json")

    def said(self) -> str:
        """The last words of Harbor."""
        return " ".join((self._folder / "log").read_text("utf-8", "replace").split())[-300:]


@asynccontextmanager
async def open_trial(
    harbor: Harbor, task: Folder, mode: str, *, timeout_factor: float
) -> AsyncIterator[Place]:
    """A task in a container of Harbor's; ended, with its container, when the block is left.

    Raises:
        EnvironmentFailed: Harbor did not start it; the message has its last words.
    """
    with tempfile.TemporaryDirectory(prefix=copies_prefix("harbor"), ignore_cleanup_errors=True) as name:
        folder, address = Path(name), str(Path(name) / "socket")
        arguments: list[Any] = [harbor.program, "run", "-p", task.place.resolve(), "-a", AGENT]
        arguments += ["--ak", f"socket={address}", "--env", harbor.environment, "--jobs-dir", folder / "jobs"]
        arguments += ["-n", "1", "-k", "1", "-y", "-q", "--agent-timeout-multiplier", timeout_factor]
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *map(str, arguments), env=dict(harbor.variables), cwd=folder, stdout=log, stderr=log
            )
        trial = Trial(process, folder)

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if not trial.connected.done():
                trial.connected.set_result((reader, writer))

        server = await asyncio.start_unix_server(connected, address, limit=LONGEST_LINE)
        ended = asyncio.ensure_future(process.wait())
        try:
            either: set[asyncio.Future[Any]] = {ended, trial.connected}
            await asyncio.wait(either, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
            if not trial.connected.done():
                raise EnvironmentFailed(f"Harbor started no agent: {trial.said() or 'not in time'}")
            await said(trial.connected.result()[0])

            async def grade() -> float:
                return await trial.reward(task.verifier_s)

            yield Place(await open_screen_elsewhere(trial, mode=mode), grade)
        finally:
            ended.cancel()
            server.close()
            await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt Harbor, so that it removes its container; kill it where it does not end."""
    for ask, wait_s in ((process.terminate, 60.0), (process.kill, 60.0)):
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            ask()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), wait_s)


async def sent(writer: asyncio.StreamWriter, record: dict[str, Any]) -> None:
    """Send one record."""
    writer.write(json.dumps(record).encode() + b"\n")
    await writer.drain()


async def said(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next record; None where the other side has closed or sends something else."""
    try:
        line = await reader.readline()
        record = json.loads(line) if line else None
    except (ValueError, OSError):
        return None
    return record if isinstance(record, dict) else None
