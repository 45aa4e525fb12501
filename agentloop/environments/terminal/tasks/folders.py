"""Tasks as folders: Terminal-Bench's (task.yaml) and Harbor's (task.toml), with their own verifiers.

A folder of such folders is a benchmark. Its version holds a hash of all its files, so that results of two
versions are never mixed, and its name: that of the folder, or what `benchmark` says (terminal-bench@2.1).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentloop.types import Task
from occupancy.importers.files import listed, mapping
from occupancy.record.errors import DataError, InputError, imported
from occupancy.record.reading import reading

from ..sandbox.images import Image
from ..sandbox.limits import Limits
from ..sandbox.sandbox import Sandbox
from ..terminus.screen import Screen
from .dockerfile import Built, build, content_hash
from .task import TerminalTask, in_sandbox
from .verifier import HARBOR, TERMINAL_BENCH, verifiable, verify

SPLIT = "test"
BUILD, VERIFIER = "build", "verifier"
"""What may have a network."""
DEFAULT_S = 900.0
"""Seconds for agent and verifier where a task does not say."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One task as its folder says it."""

    place: Path
    kind: str
    """harbor or terminal-bench."""
    instruction: str
    agent_s: float
    verifier_s: float
    settings: Mapping[str, Any]


class FolderTasks:
    """The tasks of one folder of folders; a `TaskSet`."""

    def __init__(
        self, place: Path, image: Image, *, limits: Limits, benchmark: str = "", network: str = ""
    ) -> None:
        self._network, self._image, self._limits = networks(network), image, limits
        self.folders, self.tasks, self.version = read_folder(place, benchmark)

    def open(self, task_id: str) -> TerminalTask:
        """A task, ready to be played; its start state is built when it is first needed."""
        folder = self.folders[task_id]
        if folder.kind == HARBOR and (lacking := _lacking(folder.settings)):
            raise InputError(
                f"{folder.place / 'task.toml'}: {lacking} is not supported here; run the task with Harbor, "
                f"or leave it out (--tasks @FILE)"
            )

        async def built() -> Built:
            harbor = folder.kind == HARBOR
            context = folder.place / "environment" if harbor else folder.place
            workdir = str((harbor and mapping(folder.settings.get("environment")).get("workdir")) or "/app")
            online = BUILD in self._network
            made = await build(context, self._image, limits=self._limits, workdir=workdir, network=online)
            return verifiable(made, of=folder.place)

        async def grade(sandbox: Sandbox, screen: Screen) -> float:
            online = VERIFIER in self._network
            return await verify(sandbox, folder, await built(), limits=self._limits, network=online)

        opened = in_sandbox(built, grade, limits=self._limits)
        return TerminalTask(folder.instruction, opened, agent_s=folder.agent_s)


NEEDS = (
    *("environment.env", "environment.mcp_servers", "environment.gpus", "environment.healthcheck"),
    *("agent.user", "verifier.env", "verifier.user"),
)
"""Settings of a task.toml without which a task is another one, and that only Harbor has."""


def _lacking(settings: Mapping[str, Any]) -> str:
    """The first of a task's settings that is not done here; empty where there is none."""
    parts = [(name, *name.split(".")) for name in NEEDS]
    given = {name: mapping(settings.get(table)).get(key) for name, table, key in parts}
    return next((name for name, value in given.items() if value and value not in ("root", "0")), "")


def networks(spec: str) -> tuple[str, ...]:
    """What of a task has the machine's network, as `build,verifier` names it; never the agent."""
    parts = tuple(part for part in spec.split(",") if part)
    if unknown := [part for part in parts if part not in (BUILD, VERIFIER)]:
        raise InputError(f"network={unknown[0]!r}: expected {BUILD}, {VERIFIER}, or both with a comma")
    return parts


def read_folder(place: Path, benchmark: str = "") -> tuple[Mapping[str, Folder], Mapping[str, Task], str]:
    """The tasks in the subfolders of a folder, by name, as folders and as tasks, and their version."""
    files = ("task.toml", "task.yaml")
    paths = [path for path in sorted(place.iterdir()) if any((path / file).is_file() for file in files)]
    found = [read_task(path) for path in paths]
    if not found:
        raise InputError(f"tasks={place}: no folder with a task.yaml or a task.toml in it")
    folders = {folder.place.name: folder for folder in found}
    tasks = {name: Task(name, name, SPLIT, kind=_kind(folder)) for name, folder in folders.items()}
    return folders, tasks, f"{benchmark or place.name}-{content_hash(place)}"


def read_task(place: Path) -> Folder:
    """A task's folder; DataError where something that it needs is missing or is none."""
    return _harbor(place) if (place / "task.toml").is_file() else _terminal_bench(place)


def _harbor(place: Path) -> Folder:
    file = place / "task.toml"
    with reading(place, then="expected a task.toml and an instruction.md"):
        settings = tomllib.loads(file.read_text("utf-8-sig"))
        instruction = (place / "instruction.md").read_text("utf-8-sig")
    if settings.get("steps"):
        raise DataError(f"{file}: tasks of several steps are not supported here; run them with Harbor")
    agent, verifier = settings.get("agent", {}), settings.get("verifier", {})
    agent_s, verifier_s = (_seconds(part, "timeout_sec", file) for part in (agent, verifier))
    _needs(place / "tests" / "test.sh")
    return Folder(place, HARBOR, instruction, agent_s, verifier_s, settings)


def _terminal_bench(place: Path) -> Folder:
    yaml = imported("yaml", "terminal", "PyYAML")
    file = place / "task.yaml"
    try:
        with reading(file, then="expected YAML"):
            settings = yaml.safe_load(file.read_text("utf-8-sig"))
    except (ValueError, yaml.YAMLError) as error:
        raise DataError(f"{file}: {' '.join(str(error).split())}; expected YAML") from error
    if not isinstance(settings, dict):
        raise DataError(f"{file}: expected a mapping with an instruction")
    instruction = settings.get("instruction")
    for description in map(mapping, listed(settings.get("descriptions"))):
        if description.get("key") == "base":
            instruction = instruction or description.get("description")
    if not isinstance(instruction, str):
        raise DataError(f"{file}: no instruction in it")
    if settings.get("parser_name", "pytest") != "pytest":
        raise DataError(f"{file}: parser_name {settings['parser_name']!r} is not supported: expected pytest")
    agent_s = _seconds(settings, "max_agent_timeout_sec", file)
    verifier_s = _seconds(settings, "max_test_timeout_sec", file)
    if not (place / "tests" / "run-tests.sh").is_file():
        _needs(place / "run-tests.sh")
    return Folder(place, TERMINAL_BENCH, instruction, agent_s, verifier_s, settings)


def _seconds(settings: Any, name: str, file: Path) -> float:
    if not isinstance(settings, dict):
        raise DataError(f"{file}: {settings!r:.60} where a table with {name} is expected")
    value = settings.get(name, DEFAULT_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise DataError(f"{file}: {name} = {value!r}: expected seconds above 0")
    return float(value)


def _needs(file: Path) -> None:
    if not file.is_file():
        raise DataError(f"{file}: not there; a task needs its verifier")


def _kind(folder: Folder) -> str:
    place = folder.settings.get("metadata") if folder.kind == HARBOR else folder.settings
    return str(mapping(place).get("difficulty", ""))
