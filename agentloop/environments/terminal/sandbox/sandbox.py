"""One sandbox: started, given commands, looked at from outside, and always torn down.

Its first process is a shell of the image, started before any other process was there. It reads commands from
a pipe, so nothing has to enter a sandbox later, and everything in it has the same limits. What comes back
through the pipe may be forged by the processes inside: it is bounded in size and time, and never trusted
beyond the episode. What was changed is read from outside, from the folder that overlayfs writes to.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agentloop.awake import awake_clock
from agentloop.processes import ended
from agentloop.types import EnvironmentFailed

from . import limits as limits_of
from .launch import Layers, Start, check_machine, is_root, launch_command, layers_in, map_users
from .limits import Limits, make_group
from .system_calls import call_filter

START_S = 20.0
STOP_S = 5.0
"""Seconds in which processes are stopped."""
LATE_S = 120.0
"""Seconds that the answer of a command may come after its time limit, at which it is ended inside."""
MOST_OUTPUT = 4 << 20
"""Bytes of one command's output."""
SPARE = 8
"""Processes that a command needs; the first shell ends where it cannot start them."""
_count = itertools.count()


class SandboxFailed(EnvironmentFailed):
    """A sandbox could not be started, or does not answer any more."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was run."""

    output: bytes
    """Standard output and error."""
    code: int
    """Exit status; 137 where it was ended at its time limit."""


class Sandbox:
    """An open sandbox; made by `open_sandbox`."""

    def __init__(self, start: Start, process: asyncio.subprocess.Process, pid: int) -> None:
        self.folder, self.layers = start.folder, start.layers
        self.limits, self.group = start.limits, start.group
        self._process, self.pid = process, pid
        """`pid` is the first process of the sandbox, as the machine counts."""
        self._namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino

    @property
    def root(self) -> Path:
        """The sandbox's file system as the machine sees it. Links in it lead anywhere: never follow one."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def written(self) -> dict[str, Path]:
        """Folders with what was written, keyed by where they are mounted: '/' and, if apart, '/usr'."""
        inside = Path(f"/proc/{self._process.pid}/root{self.folder}")
        return {"/": inside / "u"} | ({"/usr": inside / "uu"} if self.layers.usr else {})

    async def run(self, command: str, *, shell: str = "/bin/sh", timeout_s: float | None = None) -> Ran:
        """Run a command with `shell -c`, for at most `timeout_s` seconds, by default `limits.command_s`.

        Raises:
            SandboxFailed: the sandbox ended, does not keep to the time limit, or may start no process.
        """
        if self._is_full():
            raise SandboxFailed("the sandbox may start no process any more")
        limit = timeout_s or self.limits.command_s
        mark = secrets.token_hex(12)
        line = (
            f"printf '{mark}\\n'; "
            f"timeout -s KILL {limit:g} {shell} -c {shlex.quote(command)} </dev/null 2>&1; "
            f"printf '\\n{mark} %d\\n' $?\n"
        )
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(limit + LATE_S):
                stdin.write(line.encode("utf-8", "surrogateescape"))
                await stdin.drain()
                await stdout.readuntil(f"{mark}\n".encode())
                end = re.compile(rb"\n" + mark.encode() + rb" (\d+)\n\Z")
                output = bytearray()
                while (found := end.search(output, max(0, len(output) - 64))) is None:
                    piece = await stdout.read(1 << 16)
                    output += piece
                    if not piece or len(output) > MOST_OUTPUT:
                        raise SandboxFailed("the sandbox " + ("wrote too much" if piece else "ended"))
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            why = "does not answer in time" if isinstance(error, TimeoutError) else "ended or broke its pipe"
            raise SandboxFailed(f"the sandbox {why} (command {command[:60]!r})") from error
        return Ran(bytes(output[: found.start()]), int(found[1]))

    def _is_full(self) -> bool:
        most = self.limits.processes - SPARE
        if self.group is None or self.group.processes() <= most:
            return False
        # Ended processes count as well until they are reaped, which the next command does.
        return len(self._running("ZX")) > most

    async def enter(self, cwd: str) -> None:
        """Run later commands in a folder, which is made where there is none."""
        place = shlex.quote(cwd)
        stdin = self._process.stdin
        assert stdin is not None
        made = f"rm -rf {place}; mkdir -p {place}; cd {place}"
        stdin.write(f"cd {place} 2>/dev/null || {{ {made}; }}\n".encode())
        await stdin.drain()

    def pids(self) -> list[int]:
        """All its processes but the first, as the machine counts."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != self.pid:
                with suppress(OSError):
                    if os.stat(f"/proc/{name}/ns/pid").st_ino == self._namespace:
                        found.append(int(name))
        return found

    def _running(self, ended: str) -> list[int]:
        """Those whose state is none of these letters."""
        return [pid for pid in self.pids() if (found := process(pid)) and found.state not in ended]

    async def halt(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End (or stop, with SIGSTOP) every process but the first, until none is left that runs.

        All are stopped before one is ended, and children go before their parents, so that none sees another's
        end and writes something because of it, as shells do with their history.
        """
        await self._send(signal.SIGSTOP, until="ZTX")
        if how is not signal.SIGSTOP:
            await self._send(how, until="ZX")

    async def _send(self, how: signal.Signals, *, until: str) -> None:
        clock = awake_clock()
        while running := self._running(until):
            if clock() > STOP_S:
                raise SandboxFailed("processes of the sandbox could not be stopped")
            for pid in sorted(running, reverse=True):
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
            await asyncio.sleep(0.001)

    async def snapshot(self, folder: Path) -> Layers:
        """Copy what was written to `folder` and return the layers of a fork.

        A fork starts from these layers without copying, however many there are. Its processes, shell
        variables and screen are new: only files are kept. The sandbox's processes are stopped meanwhile.
        """
        await self.halt(signal.SIGSTOP)
        try:
            for mount, written in self.written.items():
                await self._copy(written, folder / ("usr" if mount == "/usr" else "root"))
        finally:
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        return self.layers.on_top(layers_in(folder))

    async def _copy(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        # An ordinary user may read everything there only as root of the sandbox.
        own = f"--user=/proc/{self._process.pid}/ns/user"
        enter = [] if is_root() else ["nsenter", own, "--preserve-credentials"]
        process = await asyncio.create_subprocess_exec(
            *enter, "cp", "-a", "--", f"{source}/.", str(target), stderr=asyncio.subprocess.PIPE
        )
        _, said = await process.communicate()
        if process.returncode:
            raise SandboxFailed(f"a snapshot could not be copied: {said.decode(errors='replace')[:200]}")


def open_inside(root: Path, path: str, flags: int) -> int | None:
    """Open a file of a sandbox without following any link that somebody may have put there."""
    try:
        place = os.open(root, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    *folders, name = path.strip("/").split("/")
    try:
        for folder in folders:
            inner = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError:
        return None
    finally:
        os.close(place)


def tail_inside(root: Path, path: str, most: int) -> tuple[int, bytes] | None:
    """How many bytes a file of a sandbox has, and the last of them; None where there is no plain file."""
    opened = open_inside(root, path, os.O_RDONLY)
    if opened is None:
        return None
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            return None
        return found.st_size, os.pread(opened, most, max(0, found.st_size - most))
    finally:
        os.close(opened)


@dataclass(frozen=True, slots=True)
class Process:
    """What /proc tells of a process."""

    pid: int
    state: str
    group: int
    terminal: int
    foreground: int
    """Process group that its terminal belongs to at the moment."""


def process(pid: int) -> Process | None:
    """A process, or None where there is none of that number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # Its name is in brackets and may hold anything.
    state, _, group, _, terminal, foreground, *_ = text.rpartition(")")[2].split()
    return Process(pid, state, int(group), int(terminal), int(foreground))


@asynccontextmanager
async def open_sandbox(
    layers: Layers, *, limits: Limits | None = None, cwd: str = "/", network: bool = False
) -> AsyncIterator[Sandbox]:
    """A running sandbox over `layers`; ended with everything in it when the block is left.

    Args:
        layers: read-only folders; they must not change while sandboxes use them.
        limits: what it may use.
        cwd: folder that commands are run in.
        network: whether it has the machine's network: for building start states, never for an agent.

    Raises:
        SandboxFailed: it could not be started; the message has bubblewrap's own words.
        InputError: the machine lacks something; `fewsteps doctor` says what.
    """
    check_machine()
    limits = limits or Limits()
    name = f"{os.getpid()}-{next(_count)}-{secrets.token_hex(3)}"
    folder = Path(tempfile.mkdtemp(prefix=f"{limits_of.PREFIX}{name}-"))
    group = make_group(name, limits) if is_root() else None
    process: asyncio.subprocess.Process | None = None
    pid = None
    try:
        folder.chmod(0o755)
        start = Start(folder, layers, limits, group, cwd, network)
        process, pid = await _start(start)
        sandbox = Sandbox(start, process, pid)
        up = await sandbox.run("true", timeout_s=START_S)
        if up.code:
            raise SandboxFailed(f"the image cannot run a command: {up.output.decode(errors='replace')[:200]}")
        yield sandbox
    finally:
        if process is not None:
            await _end(process, pid)
        if group is not None:
            group.remove()
        shutil.rmtree(folder, ignore_errors=True)


async def _start(start: Start) -> tuple[asyncio.subprocess.Process, int]:
    ours: list[int] = []
    theirs: list[int] = []
    process, pid, ready, calls = None, None, None, None
    try:
        info, info_end = os.pipe()
        ours, theirs = [info], [info_end]
        if is_root():
            ready, ready_end = os.pipe()
            ours, theirs = [*ours, ready_end], [*theirs, ready]
        if program := call_filter():
            calls = os.memfd_create("calls", 0)
            theirs.append(calls)
            os.write(calls, program)
            os.lseek(calls, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *launch_command(start, info=info_end, ready=ready, calls=calls),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=tuple(theirs),
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")},
            start_new_session=True,
            limit=MOST_OUTPUT,
        )
        while theirs:
            os.close(theirs.pop())
        told = await asyncio.wait_for(asyncio.to_thread(_told, info), START_S)
        found = re.search(rb'"child-pid":\s*(\d+)', told)
        if found is None:
            said = await process.stdout.read(2000) if process.stdout else b""
            raise SandboxFailed(f"no sandbox could be started: {said.decode(errors='replace').strip()}")
        pid = int(found[1])
        if ready is not None:
            map_users(pid)
            os.write(ours[-1], b"1")
        return process, pid
    except BaseException:
        if process is not None:
            await _end(process, pid)
        raise
    finally:
        for descriptor in (*ours, *theirs):
            os.close(descriptor)


def _told(info: int) -> bytes:
    """All that bubblewrap says of itself: to close its pipe before would end it."""
    told = b""
    while b"}" not in told and (piece := os.read(info, 4096)):
        told += piece
    return told


async def _end(process: asyncio.subprocess.Process, pid: int | None) -> None:
    """End a sandbox: everything inside dies with its first process."""
    with suppress(ProcessLookupError):
        process.kill()
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    await ended(process)
