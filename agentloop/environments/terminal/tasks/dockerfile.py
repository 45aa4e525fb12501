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
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from occupancy.record.errors import DataError, InputError

from ...cache import cache_folder
from ..sandbox.changes import before
from ..sandbox.images import Image, give_to_sandboxes, network_layer
from ..sandbox.launch import VARIABLES, Layers, layers_in
from ..sandbox.limits import Limits
from ..sandbox.sandbox import open_sandbox

PASSED_OVER = {"CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "SHELL"}
BUILD_S = 600.0
FORMAT = 3
"""Version of what is kept of a build; a new one builds anew."""
MOST_LINKS = 40
ELSEWHERE = "use the task with Harbor and a container engine"
_HEREDOC = re.compile(r"(?<!\S)\d*<<-?(['\"]?)(?P<mark>[A-Za-z_]\w*)\1(?=[\s;&|>)]|$)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_OWNER = re.compile(r"@\d+:\d+$")
_OPTION = re.compile(r"--(?:link|chown=(?:root|0)(?::(?:root|0))?|chmod=(?P<mode>[0-7]{3,4}))")


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
        word, rest, *_ = (*line.split(maxsplit=1), "")
        word, body = word.upper(), ""
        if word in ("RUN", "COPY") and (marks := [found["mark"] for found in _HEREDOC.finditer(rest)]):
            end = next((i for i, following in enumerate(lines) if following.strip() == marks[0]), None)
            if end is None or len(marks) > 1:
                raise InputError(f"{of}: {word} {rest[:80]}: expected text, and a line {marks[0]} after it")
            body = "".join(f"{following}\n" for following in lines[:end])
            del lines[: end + 1]
        if word in ("FROM", "WORKDIR", "ENV", "ARG", "COPY", "ADD", "RUN", "USER"):
            steps.append(Step(word, rest.strip(), body))
        elif word not in PASSED_OVER:
            raise InputError(f"{of}: {word} is not supported here; {ELSEWHERE}")
    if sum(step.word == "FROM" for step in steps) > 1 or any("--from=" in step.rest for step in steps):
        raise InputError(f"{of}: several stages are not supported here; {ELSEWHERE}")
    return steps


async def build(
    context: Path, image: Image, *, limits: Limits, workdir: str = "/app", network: bool = False
) -> Built:
    """The start state that the Dockerfile in `context` describes, built once and kept in the cache.

    Args:
        context: folder of the Dockerfile, from which files are copied.
        image: what takes the place of FROM.
        limits: of every RUN; its time is `BUILD_S`.
        workdir: the working folder, where the Dockerfile names none.
        network: whether RUN has the machine's network.

    Raises:
        InputError: an instruction that is not supported, or a command that failed; its last words are told.
    """
    file = context / "Dockerfile"
    steps = [Step("WORKDIR", workdir)]
    if file.exists():
        steps += read_steps(file.read_text("utf-8-sig"), of=str(file))
    made_of = f"{FORMAT}\n{image.name}\n{network}\n{content_hash(context)}\n{workdir}"
    digest = blake2b(made_of.encode(), digest_size=8).hexdigest()
    folder = cache_folder("terminal") / f"built-{digest}"
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
            layers = layers.on_top(layers_in(place))
        return Built(layers, done.read_text(), (folder / "path").read_text())


class _Build:
    """The state of one build: layers so far, working folder, variables."""

    def __init__(
        self, folder: Path, layers: Layers, context: Path, limits: Limits, network: Layers | None
    ) -> None:
        self.folder, self.layers, self.context, self.network = folder, layers, context, network
        self.limits = limits
        self.cwd, self.variables, self.arguments = "/", dict[str, str](), dict[str, str]()

    async def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step.word:
                case "WORKDIR":
                    self.cwd = os.path.normpath(os.path.join(self.cwd, self._filled(step.rest)))
                    with self._layer() as made:
                        self._folder(made, self.cwd)
                case "ENV" | "ARG":
                    self._variables(step)
                case "COPY" | "ADD":
                    self._copy(step)
                case "RUN":
                    await self._run(step)
                case "USER" if self._filled(step.rest) not in ("root", "0"):
                    raise self._refused(step, "expected root: tasks run as root")
        if self.variables:
            lines = [f"export {name}={shlex.quote(value)}\n" for name, value in self.variables.items()]
            with self._layer() as made:
                (self._folder(made, "/etc/profile.d") / "task.sh").write_text("".join(lines))
        (self.folder / "path").write_text(self.variables.get("PATH", ""))
        (self.folder / "cwd").write_text(self.cwd)

    def _refused(self, step: Step, why: str) -> InputError:
        return InputError(f"{self.context}: {step.word} {step.rest[:80]}: {why}")

    def _words(self, step: Step, least: int) -> list[str]:
        try:
            words = shlex.split(step.rest)
        except ValueError:  # a quote without its partner
            words = []
        if len(words) < least:
            raise self._refused(step, "expected words, and quotes in pairs")
        return words

    def _variables(self, step: Step) -> None:
        words = self._words(step, 1)
        if "=" not in words[0]:  # ENV NAME VALUE
            words = [f"{words[0]}={' '.join(words[1:])}"] if step.word == "ENV" else []
        for word in words:
            name, _, value = word.partition("=")
            (self.variables if step.word == "ENV" else self.arguments)[name] = self._filled(value)

    def _copy(self, step: Step) -> None:
        words = [self._filled(word) for word in self._words(step, 2)]
        known = [_OPTION.fullmatch(word) for word in words if word.startswith("--")]
        if not all(known):
            raise self._refused(step, "its options are not supported here")
        *sources, target = words[len(known) :]
        into = self._resolved(os.path.join(self.cwd, target))
        found = [] if step.body else [path for source in sources for path in self._found(source)]
        folder = target.endswith("/") or len(found) > 1 or (before(into, self.layers) or "").startswith("D")
        parent, name = os.path.split(into)
        with self._layer() as made:
            if step.body:
                (self._folder(made, parent) / name).write_text(step.body)
            for path in found:
                if path.is_dir():
                    self._copy_folder(made, path, into)
                else:
                    target_folder = self._folder(made, into if folder else parent)
                    shutil.copy2(path, target_folder / (path.name if folder else name))
            for mode in (int(option["mode"], 8) for option in known if option and option["mode"]):
                for path in made.rglob("*"):
                    if path.is_file() and not path.is_symlink():
                        path.chmod(mode)

    def _copy_folder(self, made: Path, source: Path, into: str) -> None:
        for place, folders, files in os.walk(source):
            target = self._folder(made, os.path.join(into, os.path.relpath(place, source)), like=place)
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            for name in (*files, *links):
                shutil.copy2(os.path.join(place, name), target / name, follow_symlinks=False)

    def _found(self, source: str) -> list[Path]:
        place = self.context.resolve()
        if "://" in source:
            raise InputError(f"{self.context}: ADD {source} needs a network: not supported here")
        found = sorted(place.glob(source.lstrip("/"))) if source not in (".", "./") else [place]
        if not found or not all(path.resolve().is_relative_to(place) for path in found):
            raise DataError(f"{self.context}: COPY {source}: no such file in the folder of the Dockerfile")
        return found

    async def _run(self, step: Step) -> None:
        known = {**self.arguments, **self.variables}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in known.items())
        command = step.body if step.body and _HEREDOC.match(step.rest) else f"{step.rest}\n{step.body}"
        layers = self.layers.on_top(self.network) if self.network else self.layers
        online = self.network is not None
        async with open_sandbox(layers, limits=self.limits, cwd=self.cwd, network=online) as sandbox:
            ran = await sandbox.run(f"{exports}set -e\n{command}", shell="/bin/bash", timeout_s=BUILD_S)
            if ran.code:
                said = ran.output.decode(errors="replace").strip()[-300:]
                how = "try --env-set network=build, or an image with what it installs (image=FOLDER)"
                raise self._refused(step, f"failed with{'' if online else 'out'} a network: {said}; {how}")
            await sandbox.halt()
            place = self.folder / self._name()
            await sandbox.snapshot(place)
            self.layers = self.layers.on_top(layers_in(place))

    @contextmanager
    def _layer(self) -> Iterator[Path]:
        """A new layer over the others, to be filled."""
        made = self.folder / self._name()
        for layers in ("root", "usr") if self.layers.usr else ("root",):
            (made / layers).mkdir(parents=True)
        yield made
        give_to_sandboxes(made)
        self.layers = self.layers.on_top(layers_in(made))

    def _folder(self, made: Path, path: str, *, like: str = "") -> Path:
        """Where a new layer has a folder, in the mode of the layers below, or of `like` where it is new."""
        place, whole = made / "root", Path(self._resolved(path))
        for inside in [*reversed(whole.parents), whole][1:]:
            apart = bool(self.layers.usr) and inside.is_relative_to("/usr")
            top, below = ("usr", "/usr") if apart else ("root", "/")
            place = made / top / inside.relative_to(below)
            place.mkdir(exist_ok=True)
            told = before(str(inside), self.layers) or ""
            if told.startswith("D"):
                place.chmod(int(told[1:].partition("@")[0], 8))
            elif like and inside == whole:
                shutil.copymode(like, place)
        return place

    def _resolved(self, path: str) -> str:
        """A path without the links in it: a new layer's folder in the place of a link would hide it."""
        done, left, links = "/", os.path.normpath(path).split("/")[1:], 0
        while left:
            name, *left = left
            told = before(os.path.join(done, name), self.layers) or ""
            if not told.startswith("L:"):
                done = os.path.join(done, name)
                continue
            links += 1
            if links > MOST_LINKS:
                raise InputError(f"{self.context}: {path} has too many links in it")
            target = os.path.normpath(os.path.join(done, _OWNER.sub("", told[2:])))
            done, left = "/", [*target.split("/")[1:], *left]
        return done

    def _name(self) -> str:
        return str(sum(path.is_dir() for path in self.folder.iterdir()))

    def _filled(self, text: str) -> str:
        known = {"PATH": VARIABLES["PATH"], **self.arguments, **self.variables}
        return _VARIABLE.sub(lambda found: known.get(found[1] or found[3]) or found[2] or "", text)


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
