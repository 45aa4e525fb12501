"""What a sandbox may use, and how a machine enforces it: control groups, or resource limits."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from agentloop.awake import awake_clock
from occupancy.record.specs import Range, check

PREFIX = "fewsteps-"
COPIES = ("verify", "tests", "harbor")
"""Temporary folders that hold something."""
REMOVE_S = 5.0
"""Seconds that processes which are being ended may take."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one sandbox may use."""

    memory_mb: Annotated[int, Range(32)] = 512
    """Memory of all processes and of all files that were written, in MB."""
    processes: Annotated[int, Range(32)] = 256
    disk_mb: Annotated[int, Range(4)] = 256
    """Files that were written, in MB; they are kept in memory."""
    files: Annotated[int, Range(1000)] = 100_000
    """Files that were written, in number."""
    command_s: Annotated[float, Range(0.1)] = 60.0
    """Seconds of one command that is run from outside."""

    def __post_init__(self) -> None:
        check(self, of="sandbox")


@dataclass(frozen=True, slots=True)
class Group:
    """Control groups of one sandbox, one folder a hierarchy."""

    folders: tuple[Path, ...]

    def processes(self) -> int:
        """How many processes are in it."""
        for folder in self.folders:
            with suppress(OSError, ValueError):
                return int((folder / "pids.current").read_text())
        return 0

    def remove(self) -> None:
        """Remove the groups; waits for processes that are being ended."""
        clock = awake_clock()
        for folder in self.folders:
            while folder.exists():
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    if clock() > REMOVE_S:
                        raise
                    time.sleep(0.002)


def make_group(name: str, limits: Limits) -> Group | None:
    """Control groups with the limits in them, or None where this process may make none.

    name  unique among all sandboxes of the machine
    """
    memory, pids = str(limits.memory_mb << 20), {"pids.max": str(limits.processes)}
    settings = {
        "memory": {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory},
        "pids": pids,
        "": {"memory.max": memory, "memory.swap.max": "0", "memory.oom.group": "0"} | pids,
    }
    made: list[Path] = []
    try:
        for controller in _controllers():
            parent = _own_group(controller)
            if parent is None:
                raise PermissionError
            folder = parent / f"{PREFIX}{name}"
            folder.mkdir()
            made.append(folder)
            for file, value in settings[controller].items():
                # Where no swap is accounted, its files are not there, and there is nothing to limit.
                if (folder / file).exists():
                    (folder / file).write_text(value)
            if not controller and not (folder / "pids.max").exists():
                raise PermissionError
    except OSError:
        Group(tuple(made)).remove()
        return None
    return Group(tuple(made))


def left_groups(pattern: str = "") -> list[Path]:
    """Groups of sandboxes, of this process and of others, whose names start with `pattern`."""
    parents = {_own_group(controller) for controller in _controllers()} - {None}
    return sorted(f for p in parents if p for f in p.glob(f"{PREFIX}{pattern}*") if f.is_dir())


def sweep() -> None:
    """Remove groups and folders whose owner, the process in their name, was killed."""
    folders = [f for f in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if f.is_dir()]
    for folder in [*left_groups(), *folders]:
        if _left(re.match(rf"{PREFIX}(\d+)-", folder.name)):
            with suppress(OSError):
                folder.rmdir()
    copies = rf"{PREFIX}(?:{'|'.join(COPIES)})-(\d+)-\w{{8}}"
    remove_copies(*(folder for folder in folders if _left(re.fullmatch(copies, folder.name))))


def copies_prefix(what: str) -> str:
    """How the name of a temporary folder begins, one of `COPIES`, so that `sweep` finds it after a kill."""
    return f"{PREFIX}{what}-{os.getpid()}-"


def remove_copies(*paths: Path) -> None:
    """Remove copies of what was written, whatever its depth and modes: shutil recurses, and gives up."""
    # The machine's root needs no modes; chmod would follow a link that it is given.
    closed = [] if os.geteuid() == 0 else [path for path in paths if not path.is_symlink()]
    for command, given in ((["chmod", "-R", "u+rwX"], closed), (["rm", "-rf"], paths)):
        if given:
            subprocess.run([*command, "--", *given], stderr=subprocess.DEVNULL, check=False)


def _left(named: re.Match[str] | None) -> bool:
    return named is not None and not Path(f"/proc/{named[1]}").exists()


def _controllers() -> tuple[str, ...]:
    """What has a hierarchy of its own; in version 2 of control groups there is one, without a name."""
    version_1 = any(kind == "cgroup" and "memory" in options for kind, _, options in _mounts())
    return ("memory", "pids") if version_1 else ("",)


def _own_group(controller: str) -> Path | None:
    """The folder of this process's group in the hierarchy of a controller ('' for version 2)."""
    kind = "cgroup" if controller else "cgroup2"
    mounts = [p for k, p, o in _mounts() if k == kind and (not controller or controller in o)]
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    paths = [path for _, names, path in lines if controller in names.split(",")]
    if not mounts or not paths:
        return None
    folder = mounts[0] / paths[0].lstrip("/")
    if not controller and not _delegates(folder):
        return None
    return folder if folder.is_dir() and os.access(folder, os.W_OK) else None


def _delegates(folder: Path) -> bool:
    """Whether groups below `folder` can have limits; asks for it where that is allowed."""
    control = folder / "cgroup.subtree_control"
    with suppress(OSError):
        if not {"memory", "pids"} <= set(control.read_text().split()):
            control.write_text("+memory +pids")
        return {"memory", "pids"} <= set(control.read_text().split())
    return False


def _mounts() -> Iterator[tuple[str, Path, list[str]]]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield kind, Path(place), options.split(",")
