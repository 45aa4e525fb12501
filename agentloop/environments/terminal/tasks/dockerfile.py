"""Start states from Dockerfiles, built in the sandbox: the part of the format that needs no network.

FROM names an image that is not fetched: the sandbox's own image takes its place. WORKDIR, ENV, ARG, COPY,
ADD of local files, and RUN are done, each RUN in a sandbox without a network; what only matters to a
container engine (CMD, EXPOSE, LABEL, ..) is passed over. Everything else is refused by name.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

from occupancy.record.errors import DataError, InputError

from ...cache import cache_folder
from ..sandbox.images import Image, give_to_sandboxes, network_layer
from ..sandbox.launch import VARIABLES, Layers
from ..sandbox.limits import Limits
from ..sandbox.sandbox import open_sandbox

PASSED_OVER = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "SHELL"}
BUILD_S = 600.0
FORMAT = 2
"""Version of what is kept of a build; a new one builds anew."""
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a Dockerfile."""

    word: str
    rest: str
    body: str = ""
    """Text of a heredoc."""


@dataclass(frozen=True, slots=True)
class Built:
    """A start state."""

    layers: Layers
    cwd: str
    path: str = ""
    """PATH that the Dockerfile sets; empty where it sets none."""


def read_steps(text: str, *, of: str) -> list[Step]:
    """The instructions of a Dockerfile.

    Raises:
        InputError: an instruction that is not supported, named with its line.
    """
    lines = text.splitlines()
    steps: list[Step] = []
    while lines:
        line = lines.pop(0)
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        while line.rstrip().endswith("\\") and lines:
            following = lines.pop(0)
            if following.strip() and not following.lstrip().startswith("#"):
                line = line.rstrip()[:-1] + following
        word, _, rest = line.strip().partition(" ")
        word, body = word.upper(), ""
        if word in ("RUN", "COPY") and (mark := _HEREDOC.search(rest)):
            inner: list[str] = []
            while lines and (following := lines.pop(0)).strip() != mark[1]:
                inner.append(following)
            body = "\n".join(inner) + "\n"
        if word in ("FROM", "WORKDIR", "ENV", "ARG", "COPY", "ADD", "RUN", "USER"):
            steps.append(Step(word, rest.strip(), body))
        elif word not in PASSED_OVER:
            raise InputError(
                f"{of}: {word} is not supported here; use the task with Harbor and a container engine"
            )
    if sum(step.word == "FROM" for step in steps) > 1 or any("--from=" in step.rest for step in steps):
        raise InputError(f"{of}: several stages are not supported here; use Harbor and a container engine")
    return steps


async def build(
    context: Path,
    image: Image,
    *,
    limits: Limits,
    salt: str = "",
    before: Sequence[Step] = (),
    network: bool = False,
) -> Built:
    """The start state that the Dockerfile in `context` describes, built once and kept in the cache.

    Args:
        context: folder of the Dockerfile, from which files are copied.
        image: what takes the place of FROM.
        limits: of every RUN; its time is `BUILD_S`.
        salt: tells apart builds that differ in something else.
        before: steps before those of the Dockerfile.
        network: whether RUN has the machine's network.

    Raises:
        InputError: an instruction that is not supported, or a command that failed; its last words are told.
    """
    file = context / "Dockerfile"
    steps = [*before, *(read_steps(file.read_text("utf-8"), of=str(file)) if file.exists() else [])]
    digest = blake2b(
        f"{FORMAT}\n{image.name}\n{salt}\n{network}\n{content_hash(context)}\n{before!r}".encode(),
        digest_size=8,
    )
    folder = cache_folder("terminal") / f"built-{digest.hexdigest()}"
    async with _alone(folder):
        done = folder / "cwd"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            folder.chmod(0o755)
            online = network_layer() if network else None
            await _Build(folder, image.layers, context, limits, online).run(steps)
        layers = image.layers
        for place in sorted(filter(Path.is_dir, folder.iterdir()), key=lambda place: int(place.name)):
            layers = layers.on_top(_layer(place, bool(image.layers.usr)))
        return Built(layers, done.read_text(), (folder / "path").read_text())


class _Build:
    """The state of one build: layers so far, working folder, variables."""

    def __init__(
        self, folder: Path, layers: Layers, context: Path, limits: Limits, network: Layers | None
    ) -> None:
        self.folder, self.layers, self.context, self.network = folder, layers, context, network
        self.limits = replace(limits, command_s=BUILD_S)
        self.cwd, self.variables, self.arguments = "/", dict[str, str](), dict[str, str]()

    async def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step.word:
                case "WORKDIR":
                    self.cwd = os.path.normpath(os.path.join(self.cwd, self._filled(step.rest)))
                    self._files({f"{self.cwd.strip('/')}/": None})
                case "ENV" | "ARG":
                    self._variables(step)
                case "COPY" | "ADD":
                    self._copy(step)
                case "RUN":
                    await self._run(step)
                case "USER" if self._filled(step.rest) not in ("root", "0"):
                    raise InputError(
                        f"{self.context}: USER {step.rest} is not supported here: tasks run as root"
                    )
        if self.variables:
            lines = [f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items()]
            self._files({"etc/profile.d/task.sh": "".join(lines)})
        (self.folder / "path").write_text(self.variables.get("PATH", ""))
        (self.folder / "cwd").write_text(self.cwd)

    def _variables(self, step: Step) -> None:
        words = shlex.split(step.rest)
        if "=" not in words[0]:  # ENV NAME VALUE
            words = [f"{words[0]}={' '.join(words[1:])}"] if step.word == "ENV" else []
        for word in words:
            name, _, value = word.partition("=")
            (self.variables if step.word == "ENV" else self.arguments)[name] = self._filled(value)

    def _copy(self, step: Step) -> None:
        words = [self._filled(word) for word in shlex.split(step.rest) if not word.startswith("--")]
        if step.body:
            self._files({self._target(words[-1], "").strip("/"): step.body})
            return
        *sources, target = words
        place, layer = self.context.resolve(), self._new()
        for source in sources:
            if "://" in source:
                raise InputError(f"{self.context}: ADD {source} needs a network: not supported here")
            found = sorted(place.glob(source.lstrip("/"))) if source not in (".", "./") else [place]
            if not found or not all(path.resolve().is_relative_to(place) for path in found):
                raise DataError(
                    f"{self.context}: COPY {source}: no such file in the folder of the Dockerfile"
                )
            for path in found:
                into = layer / self._target(
                    target, path.name if len(found) > 1 or path.is_file() else ""
                ).strip("/")
                into.parent.mkdir(parents=True, exist_ok=True)
                if path.is_dir():
                    shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True)
                else:
                    shutil.copy2(path, into)
        give_to_sandboxes(layer)

    def _target(self, target: str, name: str) -> str:
        path = os.path.normpath(os.path.join(self.cwd, target))
        folder = target.endswith("/") or target in (".", "./") or path == self.cwd
        return os.path.join(path, name) if folder and name else path

    async def _run(self, step: Step) -> None:
        known = {**self.arguments, **self.variables}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in known.items())
        command = step.body if step.body and _HEREDOC.match(step.rest) else f"{step.rest}\n{step.body}"
        layers = self.layers.on_top(self.network) if self.network else self.layers
        online = self.network is not None
        async with open_sandbox(layers, limits=self.limits, cwd=self.cwd, network=online) as sandbox:
            ran = await sandbox.run(f"{exports}set -e\n{command}", shell="/bin/bash")
            if ran.code:
                said = ran.output.decode(errors="replace").strip()[-300:]
                raise InputError(
                    f"{self.context}: RUN {step.rest[:80]} failed with{'' if online else 'out'} a network: "
                    f"{said}; try --env-set network=build, or an image with what it installs (image=FOLDER)"
                )
            await sandbox.halt()
            place = self.folder / self._name()
            await sandbox.snapshot(place)
            self.layers = self.layers.on_top(_layer(place, bool(self.layers.usr)))

    def _files(self, files: dict[str, str | None]) -> None:
        layer = self._new()
        for name, text in files.items():
            path = layer / name
            (path if text is None else path.parent).mkdir(parents=True, exist_ok=True)
            if text is not None:
                path.write_text(text)
        give_to_sandboxes(layer)

    def _new(self) -> Path:
        made = self.folder / self._name()
        (made / "root").mkdir(parents=True)
        if self.layers.usr:
            (made / "usr").mkdir()
        self.layers = self.layers.on_top(_layer(made, bool(self.layers.usr)))
        return made / "root"

    def _name(self) -> str:
        return str(sum(path.is_dir() for path in self.folder.iterdir()))

    def _filled(self, text: str) -> str:
        known = {"PATH": VARIABLES["PATH"], **self.arguments, **self.variables}
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[2], ""), text)


def content_hash(folder: Path) -> str:
    """A hash of all files in a folder: names, modes, contents."""
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*")):
        told = f"{path.relative_to(folder)}\0{path.lstat().st_mode:o}\0"
        digest.update(told.encode("utf-8", "surrogateescape"))
        if path.is_symlink():
            digest.update(os.readlink(path).encode("utf-8", "surrogateescape"))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _layer(place: Path, usr: bool) -> Layers:
    return Layers((place / "root",), (place / "usr",) if usr else ())


@asynccontextmanager
async def _alone(folder: Path) -> AsyncIterator[None]:
    """One builder of a folder at a time, in this process and in others."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.05)
        yield
