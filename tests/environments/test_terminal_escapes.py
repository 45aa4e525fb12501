"""Attempts to leave a sandbox, to reach its machine, or to forge what is graded: none succeeds."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal_machine import finished, host_image, together

from agentloop.environments.terminal.sandbox.changes import changes
from agentloop.environments.terminal.sandbox.limits import Limits
from agentloop.environments.terminal.sandbox.sandbox import Sandbox, SandboxFailed, open_sandbox
from agentloop.environments.terminal.sandbox.system_calls import SOCKETS, forbidden
from agentloop.environments.terminal.terminus.screen import open_screen

WON = "ESCAPED"
SECRET = "a secret of the machine"
KERNEL = ("kernel/core_pattern", "kernel/hostname", "kernel/printk", "vm/overcommit_memory")


def call(name: str, *arguments: int | str) -> str:
    """A shell command that makes a system call by number, and says so if it is not refused."""
    number = forbidden().get(name, -1)
    given = ", ".join(f"b{a!r}" if isinstance(a, str) else str(a) for a in arguments)
    return python(
        f"import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.syscall({number}, {given or 0}); "
        f"print('{WON}' if r >= 0 or ctypes.get_errno() not in (1, 38) else 'refused')"
    )


def python(code: str) -> str:
    """A shell command that runs Python."""
    return f"python3 -c {quoted(code)}"


def tries(setup: str, attempt: str) -> str:
    """A shell command in which Python tries something that should fail with an OSError."""
    return python(f"{setup}\ntry:\n {attempt}\n print('{WON}')\nexcept OSError:\n print('refused')")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def won(command: str) -> str:
    return f"{command} && echo {WON}"


SHOW = "grep -q 'secret of the machine' {file} && echo " + WON
ATTEMPTS = {
    # files of the machine
    "read a file of the machine": SHOW.format(file="$SECRET"),
    "through a symbolic link": "ln -s $SECRET /x; " + SHOW.format(file="/x"),
    "through a hard link": f"ln $SECRET /x && echo {WON}",
    "through the root of another process": "for p in /proc/[0-9]*; do "
    + SHOW.format(file="$p/root$SECRET $p/cwd/../../..$SECRET")
    + "; done",
    "through dots": SHOW.format(file="/../../..$SECRET"),
    "through an old root": won("ls /oldroot /newroot"),
    "out of a second chroot": python(
        "import os; os.mkdir('/j'); os.chroot('/j'); [os.chdir('..') for _ in range(64)]; os.chroot('.'); "
        f"print('{WON}' if os.path.exists(os.environ['SECRET']) else 'no')"
    ),
    "through an inherited descriptor": python(
        "import os, stat\nfor f in range(3, 256):\n try:\n  s = os.fstat(f)\n"
        f"  if stat.S_ISDIR(s.st_mode) or stat.S_ISREG(s.st_mode): print('{WON}')\n"
        " except OSError: pass"
    ),
    "by a file handle": call("open_by_handle_at", -100, "x", 0),
    "passwords of the machine": won("grep -q '^root:[$*!]' /etc/shadow"),
    "variables of the machine": won("env | grep -q FEWSTEPS_DATA"),
    "variables of the supervisor": won("tr '\\0' '\\n' < /proc/1/environ | grep -q FEWSTEPS_DATA"),
    "sockets of services": won("ls /var/run/docker.sock /run/containerd /run/user"),
    # mounts and namespaces
    "mount a tmpfs": won("mount -t tmpfs x /mnt"),
    "mount a proc": won("mount -t proc x /mnt"),
    "mount control groups": won("mount -t cgroup -o memory x /mnt"),
    "bind": won("mount --bind /etc /mnt"),
    "remount": won("mount -o remount,rw /proc/irq"),
    "unmount": won("umount /proc") + "; " + won("umount -l /dev"),
    "pivot the root": call("pivot_root", "/mnt", "/mnt"),
    "new mounting calls": call("fsopen", "tmpfs", 0),
    "open a tree": call("open_tree", -100, "/", 1),
    "a user namespace": won("unshare -Ur true"),
    "a mount namespace": won("unshare -m true"),
    "a namespace by clone": python(
        "import ctypes, os; c = ctypes.CDLL(None, use_errno=True)\n"
        "r = c.syscall(56 if os.uname().machine == 'x86_64' else 220, 0x10000000 | 17, 0, 0, 0, 0)\n"
        f"print('{WON}' if r >= 0 else 'refused')"
    ),
    "enter a namespace": won("nsenter -t 1 -m -p true"),
    "join a namespace by number": call("setns", 0, 0),
    # devices
    "make a disk": won("mknod /d b 254 0 && head -c1 /d"),
    "make the memory": won("mknod /m c 1 1 && head -c1 /m"),
    "disks and guests": won("ls /dev/vda || ls /dev/sda || ls /dev/kvm || ls /dev/fuse || ls /dev/net/tun"),
    "kernel memory": won("head -c1 /proc/kcore || head -c1 /dev/mem || head -c1 /dev/kmsg"),
    "a loop device": won("losetup -f"),
    # the kernel
    "core pattern": won("echo '|/bin/sh' > /proc/sys/kernel/core_pattern"),
    "kernel settings": won("echo 0 > /proc/sys/kernel/printk || echo 2 > /proc/sys/vm/overcommit_memory"),
    "sysrq": won("echo h > /proc/sysrq-trigger"),
    "drop caches": won("echo 1 > /proc/sys/vm/drop_caches"),
    "the machine's name": won("hostname evil"),
    "the clock": won("date -s 2001-01-01"),
    "the log": won("dmesg"),
    "a module": call("init_module", "x", 1, "x"),
    "reboot": call("reboot", -18751827, 672274793, 0, 0),
    "swap": call("swapon", "/x", 0),
    "programs in the kernel": call("bpf", 0, "x", 48),
    "performance events": call("perf_event_open", "x", 0, -1, -1, 0),
    "page faults": call("userfaultfd", 0),
    "keys": call("keyctl", 0, -3, 1),
    "rings": call("io_uring_setup", 1, "x"),
    "kexec": call("kexec_load", 0, 0, 0, 0),
    "groups": won("ls /sys/fs/cgroup/memory || cat /sys/fs/cgroup/cgroup.procs"),
    # processes
    "kill a process of the machine": won("kill -9 $VICTIM"),
    "kill the supervisor": "for s in KILL TERM INT STOP HUP SEGV; do kill -$s 1; done; sleep .1",
    "trace the supervisor": call("ptrace", 16, 1, 0, 0),
    "memory of a process of the machine": won("ls /proc/$VICTIM/mem"),
    "memory of the kernel through a process": won("dd if=/proc/1/mem bs=4096 skip=4503599627366400 count=1"),
    "read another memory": call("process_vm_readv", 1, 0, 0, 0, 0, 0),
    "steal a descriptor": call("pidfd_getfd", 0, 0, 0),
    "priority over others": won("chrt -f 50 true") + "; " + won("renice -n -10 -p $$"),
    "see other processes": f"[ $(ls -d /proc/[0-9]* | wc -l) -gt 12 ] && echo {WON}",
    "a fork bomb": "b() { b | b & }; b 2>/dev/null; sleep .3",
    "all the memory": won("head -c 900000000 /dev/zero | tail -c 899999999 > /dev/null"),
    "all the disk": won("head -c 400000000 /dev/zero > /fill") + "; rm -f /fill",
    "all the files": won("mkdir /i && cd /i && seq 200000 | xargs touch 2>/dev/null") + "; rm -rf /i",
    "more open files": won("ulimit -n 1000000"),
    # rights
    "a set-user-id shell": "cp /bin/bash /b; chmod 4755 /b; setpriv --reuid 1000 --clear-groups "
    f"/b -p -c 'id -u' | grep -qx 0 && echo {WON}",
    "capabilities of a file": "cp /bin/sh /c; setcap cap_sys_admin+ep /c && "
    + won("/c -c 'mount -t tmpfs x /mnt'"),
    "type into the terminal": tries(
        "import fcntl, termios", "fcntl.ioctl(open('/dev/ptmx', 'wb', 0), termios.TIOCSTI, b'x')"
    ),
    # network
    "a service of the machine": tries(
        "import os, socket", "socket.create_connection(('127.0.0.1', int(os.environ['PORT'])), 1)"
    ),
    "the internet": tries("import socket", "socket.create_connection(('1.1.1.1', 53), 1)"),
    "an abstract socket of the machine": tries(
        "import os, socket", "socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['NAME'])"
    ),
    "the virtual machine's host": tries("import socket", "socket.socket(40, socket.SOCK_STREAM)"),
    "raw packets": tries("import socket", "socket.socket(17, socket.SOCK_RAW)"),
    "a network device": won("ip link add x type dummy"),
    # tools that run later
    "replace the tools": "rm /bin && mkdir /bin && "
    "printf '#!/usr/bin/dash\\necho x\\n' > /bin/sh && chmod 755 /bin/sh",
}


def test_there_are_enough() -> None:
    assert len(ATTEMPTS) >= 40
    assert 40 not in SOCKETS
    assert 17 not in SOCKETS


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What could be reached on the machine: a file, a process, a service, a local socket."""
    secret = tmp_path_factory.mktemp("machine") / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o666)
    name = f"fewsteps-{os.getpid()}"
    with (
        subprocess.Popen(["sleep", "600"]) as victim,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
    ):
        local.bind(f"\0{name}")
        local.listen()
        yield {
            "SECRET": str(secret),
            "VICTIM": str(victim.pid),
            "PORT": str(server.getsockname()[1]),
            "NAME": name,
        }
        assert victim.poll() is None
        assert secret.read_text() == SECRET
        victim.kill()


def seen() -> tuple[list[str], list[str]]:
    """Mounts and kernel settings of the machine."""
    settings = [Path("/proc/sys", name).read_text() for name in KERNEL]
    return Path("/proc/self/mounts").read_text().splitlines(), settings


@pytest.mark.slow
def test_no_attempt_succeeds(machine: dict[str, str]) -> None:
    layers, before = host_image().layers, seen()
    variables = " ".join(f"{name}={quoted(value)}" for name, value in machine.items())
    limits = Limits(memory_mb=256, disk_mb=64, processes=64, files=20_000, command_s=20)
    free = asyncio.Semaphore(4)

    async def attempt(name: str, command: str) -> str:
        async with free, open_sandbox(layers, limits=limits) as sandbox:
            ran = await sandbox.run(f"export {variables}; {command}")
            if WON.encode() in ran.output:
                return f"{name}: {ran.output.decode(errors='replace')[-300:]}"
            return "" if await answers(sandbox, name) else f"{name}: the sandbox is gone"

    async def answers(sandbox: Sandbox, name: str) -> bool:
        if name == "replace the tools":
            return True
        await sandbox.halt()
        return (await sandbox.run("echo up")).output == b"up\n"

    async def all_of_them() -> list[str]:
        return await together(attempt(name, command) for name, command in ATTEMPTS.items())

    assert [told for told in finished(all_of_them) if told] == []
    assert seen() == before

    async def run_goes_on() -> bytes:
        async with open_sandbox(layers) as sandbox:
            return (await sandbox.run("tmux -V; ls /b /c /x 2>/dev/null")).output

    assert finished(run_goes_on).startswith(b"tmux ")


def test_a_terminal_shows_text_alone() -> None:
    codes = (
        "\\033]0;title\\007",
        "\\033]52;c;eA==\\007",
        "\\033[6n",
        "\\033P+q544e\\033\\\\",
        "\\033[?1049h",
        "\\x9b5n",
    )

    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            for code in codes:
                await screen.type(f"printf 'a{code}b'\n", 0.1)
                shown = await screen.output()
                assert shown is not None
                assert not any(ord(letter) < 32 and letter != "\n" for letter in shown), code

    finished(play)


def test_a_terminal_that_is_tampered_with_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"\x1b[?2004l\r{SECRET}")
    link = f"rm -rf /run/terminal/log; ln -s {tmp_path}/secret /run/terminal/log\n"
    folder = f"mv /run/terminal /run/t; ln -s {tmp_path} /run/terminal\n"

    async def play() -> None:
        for keys in (link, folder):
            async with open_sandbox(host_image().layers) as sandbox:
                screen = await open_screen(sandbox)
                await screen.type(keys, 0.1)
                assert SECRET not in (await screen.last_output() or "")
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            await screen.type("tmux kill-server\n", 0.1)
            assert await screen.output() is None

    finished(play)


def test_changes_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)

    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run(
                f"ln -s {tmp_path} /out; rm -rf /srv; ln -s / /srv; mkfifo /pipe; mkdir -p /a/b"
            )
            await sandbox.halt()
            assert changes(sandbox) == {
                "/a": "D755",
                "/a/b": "D755",
                "/out": f"L:{tmp_path}",
                "/pipe": "P644",
                "/srv": "L:/",
            }

    finished(play)


def test_a_sandbox_whose_shell_is_replaced_fails_and_ends() -> None:
    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run(ATTEMPTS["replace the tools"])
            with pytest.raises(SandboxFailed, match="tmux does not start"):
                await open_screen(sandbox)

    finished(play)
