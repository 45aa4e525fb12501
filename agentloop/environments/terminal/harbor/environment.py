"""The local sandbox as an environment of Harbor: `harbor run --env` with this module and `LocalSandbox`.

    harbor run -p TASK -a oracle --env agentloop.environments.terminal.harbor.environment:LocalSandbox

Tasks are verified as `--env terminal` verifies them: when Harbor brings the tests, the agent's processes end,
and what it left is laid over the task's start state, without what a verifier must find unchanged.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import shlex
import shutil
import stat
import tarfile
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

from ..sandbox.images import HOST, open_image
from ..sandbox.limits import Limits, sweep
from ..sandbox.sandbox import Sandbox, SandboxFailed, open_inside, open_sandbox
from ..tasks.dockerfile import Built, build
from ..tasks.folders import BUILD, VERIFIER, networks
from ..tasks.verifier import open_fork, verifiable

TESTS = PurePosixPath("/tests")
PIECE = 48 << 10
"""Bytes of a file that one command brings; its text, a third longer, is one argument."""
NO_LIMIT_S = 24 * 3600.0
DEEPEST = 50
MOST_COPIED = 1 << 20
"""Bytes of a file with holes that is brought out."""


class LocalSandbox(BaseEnvironment):  # type: ignore[misc]
    """A task of Harbor in the local sandbox.

    Options (`--ek NAME=VALUE`): `image`, `network`, `memory_mb`, `disk_mb` and `processes`, see
    docs/terminal.md. Memory is what the task asks for, 512 MB by default. An agent never has a network.
    """

    def __init__(
        self,
        *given: Any,
        image: str = HOST,
        network: str = "",
        memory_mb: int = 0,
        disk_mb: int = 256,
        processes: int = 256,
        **named: Any,
    ) -> None:
        self._image, self._networks = image, networks(network)
        super().__init__(*given, **named)
        self._limits = Limits(
            memory_mb=memory_mb or self._effective_memory_mb or Limits().memory_mb,
            disk_mb=disk_mb,
            processes=processes,
        )
        self._open = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._sandbox: Sandbox | None = None
        self._built: Built | None = None

    @staticmethod
    def type() -> str:
        """The name of this environment in Harbor's results."""
        return "fewsteps"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What Harbor may ask for: a task without a network, and nothing else."""
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self) -> None:
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise ValueError(f"{self.environment_dir}: docker-compose.yaml needs a container engine")

    async def start(self, force_build: bool) -> None:
        """Build the start state where it is not cached, and start a sandbox on it."""
        sweep()
        built = await build(
            self.environment_dir,
            open_image(self._image),
            limits=self._limits,
            workdir=self.task_env_config.workdir or "/app",
            network=BUILD in self._networks,
        )
        self._built = verifiable(built, of=self.environment_dir)
        self._sandbox = await self._open.enter_async_context(
            open_sandbox(self._built.layers, limits=self._limits, cwd=self._built.cwd)
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """End the sandbox; nothing of it is kept, whatever `delete` says."""
        self._sandbox = None
        await self._open.aclose()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command; standard output and error come back together, as standard output."""
        given = self._merge_env(env) or {}
        exports = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        lines = [*exports, *([f"cd {shlex.quote(cwd)} || exit 1"] if cwd else []), command]
        shell = "/bin/bash --login"
        who = self._resolve_user(user)
        if who not in (None, "root", "0", 0):
            name = shlex.quote(str(who))
            shell = f"setpriv --reuid {name} --regid $(id -g {name}) --init-groups -- {shell}"
        try:
            async with self._turn:
                limit = float(timeout_sec or NO_LIMIT_S)
                ran = await self._running().run("\n".join(lines), shell=shell, timeout_s=limit)
        except SandboxFailed as error:
            raise RuntimeError(str(error)) from error
        return ExecResult(stdout=ran.output.decode("utf-8", "replace"), stderr="", return_code=ran.code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Write a file of the machine into the sandbox, with its mode."""
        source, place = Path(source_path), shlex.quote(str(target_path))
        await self._write(source, f'mkdir -p "$(dirname {place})" && cat > {place}', append=f"cat >> {place}")
        await self._do(f"chmod {stat.S_IMODE(source.stat().st_mode):o} {place}")

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Write a folder's content into a folder of the sandbox; tests go to a verifier's fork."""
        if PurePosixPath(target_dir) == TESTS:
            await self._fork()
        place = shlex.quote(str(target_dir))
        with tempfile.NamedTemporaryFile(suffix=".tar") as packed:
            with tarfile.open(packed.name, "w") as files:
                for path in sorted(Path(source_dir).iterdir()):
                    files.add(path, path.name)
            archive = f"/upload-{secrets.token_hex(8)}.tar"
            await self._write(Path(packed.name), f"cat > {archive}", append=f"cat >> {archive}")
        unpack = f"tar -x --no-same-owner -C {place} -f {archive}; rm {archive}"
        await self._do(f"mkdir -p {place} && {unpack}")

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file of the sandbox to the machine; no link in it is followed."""
        opened = open_inside(self._running().root, str(source_path), os.O_RDONLY)
        if opened is None:
            raise FileNotFoundError(source_path)
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(_copy, opened, Path(target_path))

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the files below a folder of the sandbox to the machine; links are left out."""
        opened = open_inside(self._running().root, str(source_dir), os.O_RDONLY | os.O_DIRECTORY)
        if opened is None:
            raise FileNotFoundError(source_dir)
        try:
            await asyncio.to_thread(_copy_all, opened, Path(target_dir))
        finally:
            os.close(opened)

    async def _fork(self) -> None:
        assert self._built is not None
        left = self._running()
        online = VERIFIER in self._networks
        self._sandbox = await self._open.enter_async_context(
            open_fork(left, self._built, limits=self._limits, network=online)
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))

    async def _write(self, source: Path, first: str, *, append: str) -> None:
        with source.open("rb") as file:
            command, data = first, file.read(PIECE)
            while data or command == first:
                packed = base64.b64encode(data).decode()
                await self._do(f"printf %s {packed} | base64 -d | {{ {command}; }}")
                command, data = append, file.read(PIECE)

    async def _do(self, command: str) -> None:
        async with self._turn:
            ran = await self._running().run(command)
        if ran.code:
            raise RuntimeError(f"{command[-80:]!r} failed in the sandbox: {ran.output[-200:]!r}")

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the sandbox is not running: it has to be started first")
        return self._sandbox


def _copy_all(folder: int, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for place, folders, names, handle in os.fwalk(".", dir_fd=folder):
        if place.count("/") >= DEEPEST:
            folders.clear()  # os.fwalk recurses; nobody's logs are that deep
        for name in names:
            try:
                opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
            except OSError:
                continue  # a link, or gone by now
            (target / place).mkdir(parents=True, exist_ok=True)
            _copy(opened, target / place / name)


def _copy(opened: int, target: Path) -> None:
    with open(opened, "rb") as source:
        found = os.fstat(opened)
        # A file with holes may claim any size.
        if stat.S_ISREG(found.st_mode) and found.st_size <= max(MOST_COPIED, 512 * found.st_blocks):
            with target.open("wb") as file:
                shutil.copyfileobj(source, file)
