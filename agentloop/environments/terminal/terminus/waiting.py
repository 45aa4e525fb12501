"""Whether a terminal waits for input: seen from outside, in /proc, so that nobody inside notices.

A command that was typed has ended when the shell of the terminal reads again. That needs no sleeping: a
command is waited for as long as it takes and no longer, and a replay on a slower machine sees the same
screen.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import select
import stat
import struct
import termios
from dataclasses import dataclass
from pathlib import Path

from agentloop.awake import awake_clock

from ..sandbox.sandbox import Process, open_inside, process, tail_inside

POLL_S = (0.001, 0.04)
"""Seconds between two looks: the first, and the most."""
CALM_S = 0.05
"""Seconds without a change after which a program that reads the terminal is taken to wait for input."""
QUIET_S = 0.5
"""Seconds after which a program that watches several things at once, as editors and servers do, is taken to
wait for input."""
_READ, _SELECT = {
    "x86_64": ({0, 17, 19}, {7, 23, 270, 271, 232, 281}),
    "aarch64": ({63, 65, 67}, {72, 73, 22}),
}.get(platform.machine(), (set(), set()))
ACCEPTED, PROMPT = b"\x1b[?2004l", b"\x1b[?2004h"
"""What the shell sends when it has read a line, and before it reads one."""
TAIL = 4096
_PTS = range(136, 144)
"""Device numbers of pseudo-terminals."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal in a sandbox, with the shell that reads it and the server that draws it."""

    shell: int
    server: int
    root: Path
    """The sandbox's file system, as the machine sees it."""
    log: str
    """Where the server writes all output to, inside."""

    async def settled(self, *, most_s: float, typed_at: int | None = None) -> bool:
        """Wait until the terminal waits for input.

        The kernel hands a terminal's bytes on a little later, so a glance is not enough: the shell has to
        have read the line and shown its prompt again, and anything else must be seen unchanged for a while.

        Args:
            most_s: seconds after which it is given up.
            typed_at: bytes of output (`size`) before a whole line was typed at the shell's prompt; None where
                that was not so.

        Returns:
            Whether it waits for input.
        """
        clock, pause, since, before = awake_clock(0.9 * CALM_S), POLL_S[0], 0.0, ("", 0)
        while True:
            seen = self._look()
            size, tail = self.tail()
            now = clock()
            since = since if (seen, size) == before else now
            before = (seen, size)
            accepted = tail.rfind(ACCEPTED)
            if seen == "gone" or (
                seen == "prompt"
                and tail.rfind(PROMPT) > accepted
                and typed_at is not None
                and (size - len(tail) + accepted >= typed_at or size - len(tail) > typed_at)
            ):
                return True
            calm = CALM_S if seen == "input" or (seen == "prompt" and typed_at is None) else QUIET_S
            if seen != "busy" and now - since >= calm:
                return True
            if now >= most_s:
                return False
            await asyncio.sleep(min(pause, most_s - now))
            pause = min(pause * 1.5, POLL_S[1])

    @property
    def size(self) -> int:
        """Bytes of all output so far."""
        return self.tail()[0]

    @property
    def alive(self) -> bool:
        """Whether its shell runs."""
        return process(self.shell) is not None

    def at_prompt(self) -> bool:
        """Whether the shell itself has the terminal, rather than a program that it started."""
        shell = process(self.shell)
        return shell is not None and shell.foreground == shell.group

    def _look(self) -> str:
        """prompt (of the shell), input, watches (several things at once), busy, or gone."""
        shell = process(self.shell)
        if shell is None or shell.state in "ZX":
            return "gone"
        # The server sleeps when it has passed all keys on, and again when it has drawn all output.
        if not _sleeps(self.server) or self._unread(shell.terminal):
            return "busy"
        shell = process(self.shell) or shell
        own = shell.foreground == shell.group
        doing = {_waits(p) for p in ([shell] if own else _members(shell.foreground))}
        if not doing or "runs" in doing or doing == {"sleeps"} or not _sleeps(self.server):
            return "busy"
        if own and "selects" in doing:
            return "prompt"
        return "input" if "reads" in doing else "watches"

    def _unread(self, device: int) -> bool:
        """Whether keys were sent that nobody has read."""
        number = (device & 0xFF) | ((device >> 12) & 0xFFF00)
        opened = open_inside(self.root, f"dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
        if opened is None:
            return False
        try:
            found = os.fstat(opened)
            if not stat.S_ISCHR(found.st_mode) or os.major(found.st_rdev) not in _PTS:
                return False
            # To poll a terminal makes the kernel deliver what it still holds back.
            poll = select.poll()
            poll.register(opened, select.POLLIN)
            poll.poll(0)
            unread: int = struct.unpack("i", fcntl.ioctl(opened, termios.FIONREAD, b"\0\0\0\0"))[0]
            return unread > 0
        except OSError:
            return False
        finally:
            os.close(opened)

    def tail(self, most: int = TAIL) -> tuple[int, bytes]:
        """How many bytes of output there are so far, and the last of them; starts nothing inside."""
        return tail_inside(self.root, self.log, most) or (0, b"")


def inside_number(pid: int) -> int:
    """The number that a process has in its own namespace; 0 where there is no such process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0
    return int(next((line.split()[-1] for line in lines if line.startswith("NSpid:")), "0"))


def _members(group: int) -> list[Process]:
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [p for p in found if p is not None and p.group == group and p.state not in "ZX"]


def _sleeps(pid: int) -> bool:
    """Whether the terminal's server waits for something to happen."""
    seen = process(pid)
    return seen is None or (seen.state == "S" and _call(pid)[0] in _SELECT)


def _waits(seen: Process) -> str:
    """reads (its terminal), selects, sleeps (for something else), or runs."""
    if seen.state not in "ST":
        return "runs"
    number, descriptor = _call(seen.pid)
    if number in _SELECT:
        return "selects"
    if number in _READ:
        try:
            device = os.stat(f"/proc/{seen.pid}/fd/{descriptor}").st_rdev
        except OSError:
            return "sleeps"
        return "reads" if os.major(device) in _PTS or device == os.makedev(5, 0) else "sleeps"
    return "sleeps"


def _call(pid: int) -> tuple[int, int]:
    """Number and first argument of the system call in which a process waits; -1 where it is in none."""
    try:
        parts = Path(f"/proc/{pid}/syscall").read_text().split()
        return int(parts[0]), int(parts[1], 16)
    except (OSError, ValueError, IndexError):
        return -1, -1
