"""What a machine has, and what it lacks, for terminal tasks: for `fewsteps doctor`."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentloop.types import EnvironmentFailed
from occupancy.record.errors import FewstepsError, install_command

from .harbor.trial import find_harbor
from .sandbox.images import open_image
from .sandbox.launch import find_bubblewrap, is_root, needed_tools
from .sandbox.limits import Limits, make_group
from .sandbox.sandbox import open_sandbox
from .sandbox.system_calls import call_filter
from .terminus.screen import open_screen

LEAST_KERNEL = (6, 6)
"""First Linux whose tmpfs keeps the attributes that overlayfs needs of an unprivileged user."""
PROGRAMS = {
    "tmux": "tmux",
    "tree": "tree",
    "cpio": "cpio",
    "jq": "jq",
    "pstree": "psmisc",
    "column": "bsdextrautils",
    "rename": "rename",
}
"""What the reference commands of nl2bash use beside a base system, with the Debian packages that have it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    group: str
    name: str
    good: bool
    found: str
    """What is there, in a few words."""
    remedy: str = ""
    """What to do where it is not good."""
    needed: bool = True
    """False where something works without it, only less well."""


_seen = partial(Check, "terminal")


def check_sandbox() -> list[Check]:
    """Everything that the local sandbox needs; the last one starts a terminal in one."""
    if sys.platform != "linux":
        return [_seen("Linux", False, sys.platform, "run terminal tasks on Linux, or in a Linux VM")]
    release, machine, lacking = platform.release(), platform.machine(), needed_tools()
    numbers = tuple(int(n) for n in re.findall(r"\d+", release)[:2])
    newer = f"use Linux {'.'.join(map(str, LEAST_KERNEL))} or newer"
    tools = f"no {', '.join(lacking)}" if lacking else "unshare, mount, prlimit"
    known = "use x86_64 or aarch64: no filter is written for other machines"
    containers = (
        "only for containers of Harbor (--env-set harbor=docker): docs/terminal.md says how to install it"
    )
    found = [
        _seen("kernel", numbers >= LEAST_KERNEL, release, newer),
        _namespaces(),
        _looked_for("bubblewrap", find_bubblewrap, install_command("terminal")),
        _seen("util-linux", not lacking, tools, "apt-get install util-linux mount"),
        _groups(),
        _seen("system call filter", bool(call_filter()), machine, known, needed=False),
        *_programs(),
        _looked_for("Harbor", lambda: find_harbor("docker").program, containers, needed=False),
    ]
    if all(check.good for check in found if check.needed):
        found.append(_start())
    return found


def _looked_for(name: str, find: Callable[[], object], remedy: str, *, needed: bool = True) -> Check:
    try:
        return _seen(name, True, str(find()), needed=needed)
    except FewstepsError:
        return _seen(name, False, "not found", remedy, needed=needed)


def _namespaces() -> Check:
    switches = {
        "/proc/sys/kernel/unprivileged_userns_clone": "1",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "0",
    }
    for place, wanted in switches.items():
        file = Path(place)
        if not is_root() and file.exists() and file.read_text().strip() != wanted:
            name = place.removeprefix("/proc/sys/").replace("/", ".")
            return _seen("user namespaces", False, f"{name} forbids", f"sysctl -w {name}={wanted}")
    most = Path("/proc/sys/user/max_user_namespaces")
    good = most.exists() and int(most.read_text()) > 0
    remedy = "sysctl -w user.max_user_namespaces=10000, on the machine itself and not in a container"
    return _seen("user namespaces", good, "allowed" if good else "none allowed", remedy)


def _groups() -> Check:
    group = make_group(f"{os.getpid()}-doctor", Limits()) if is_root() else None
    if group is not None:
        group.remove()
        return _seen("control groups", True, "memory and processes are limited by sandbox")
    remedy = "run as root where control groups can be written: limits are per process otherwise"
    return _seen("control groups", False, "cannot be made", remedy, needed=False)


def _programs() -> list[Check]:
    # They are run in the sandbox: where the machine's own PATH has them does not matter.
    found = []
    for name, package in PROGRAMS.items():
        there = any(Path(place, name).exists() for place in ("/usr/bin", "/bin"))
        remedy = f"apt-get install {package}, or use an image of your own (--make-image)"
        told = "in /usr/bin" if there else "not in /usr/bin"
        found.append(_seen(name, there, told, remedy, needed=name == "tmux"))
    return found


def _start() -> Check:
    async def start() -> None:
        async with open_sandbox(open_image().layers) as sandbox:
            await open_screen(sandbox)

    try:
        asyncio.run(start())
    except (FewstepsError, EnvironmentFailed, OSError) as error:
        remedy = "see the message; a container must allow user namespaces (--privileged, or a VM)"
        return _seen("a sandbox", False, " ".join(str(error).split())[:200], remedy)
    return _seen("a sandbox", True, "was started, and a terminal in it")
