"""What was changed in a sandbox, read from the folders that overlayfs writes to, and a hash of it.

A change is told as text: `F:` with the first 16 digits of the content's SHA-256 and the mode, `L:` with a
link's target, `D` with a folder's mode, `P` with the mode of a pipe or socket, or `DELETED`. Owners other
than root are added as `@user:group`. Times are no part of it, so equal work gives equal changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

from .launch import USER_BASE, Layers
from .sandbox import Sandbox

DELETED = "DELETED"
MOST = 5000
MANY = {"/": f"more than {MOST} paths"}
DEEPEST = 200
HOLES = 4
OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


@dataclass(frozen=True, slots=True)
class Changes:
    """What was done to the files of a sandbox."""

    changed: dict[str, str]
    """Every path whose content, kind, mode or owner differs from the start."""
    written: dict[str, str]
    """The same and paths that were written as they had been, folders apart."""


def changes(sandbox: Sandbox) -> dict[str, str]:
    """Every path whose content, kind, mode or owner differs from what the sandbox started from."""
    return find_changes(sandbox).changed


def find_changes(sandbox: Sandbox) -> Changes:
    """What was done to the files of a sandbox. Nothing inside should run meanwhile: see `Sandbox.halt`.

    More than `MOST` paths are told as one, `MANY`: no task has so many, and to read them all takes long. So
    are folders deeper than `DEEPEST`, and files that claim `HOLES` times the bytes that may be written.
    """
    layers = {"/": sandbox.layers.root, "/usr": sandbox.layers.usr}
    if beyond := _beyond(sandbox.written.values(), HOLES * sandbox.limits.disk_mb << 20):
        return Changes({"/": beyond}, {"/": beyond})
    changed: dict[str, str] = {}
    rewritten: dict[str, str] = {}
    for mount, written in sandbox.written.items():
        prefix = "" if mount == "/" else mount
        for path, now, old in _changed(written, layers[mount]):
            if mount == "/" and path == "/usr" and sandbox.layers.usr:
                continue
            if now != old:
                changed[prefix + path] = now
            if not now.startswith("D") or now == DELETED:
                rewritten[prefix + path] = now
            if len(changed) > MOST:  # a deleted folder may have held many
                return Changes(dict(MANY), dict(MANY))
    return Changes(dict(sorted(changed.items())), dict(sorted(rewritten.items())))


def _beyond(written: Iterable[Path], most_bytes: int) -> str:
    """Why what was written cannot be told path by path; empty where it can."""
    number = size = 0
    for top in written:
        for place, folders, files, handle in os.fwalk(top):
            if place.count("/") - str(top).count("/") > DEEPEST:
                return f"folders deeper than {DEEPEST}"
            number += len(folders) + len(files)
            if number > MOST:
                return MANY["/"]
            size += sum(os.stat(name, dir_fd=handle, follow_symlinks=False).st_size for name in files)
            if size > most_bytes:
                return f"files of more than {most_bytes} bytes"
    return ""


def before(path: str, layers: Layers) -> str | None:
    """What a path was at the start; None where there was nothing."""
    if layers.usr and path.startswith("/usr/"):
        return _described(path.removeprefix("/usr"), layers.usr)
    return _described(path, layers.root)


def state_hash(changed: Iterable[tuple[str, str]]) -> int:
    """A positive number of 63 bits for a state: equal for equal changes in the same order."""
    digest = blake2b(digest_size=8)
    for pair in changed:
        for part in pair:
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big") >> 1


def _changed(written: Path, below: Sequence[Path]) -> Iterator[tuple[str, str, str | None]]:
    """Every path that was written, what it is now, and what it was."""
    new: set[str] = set()
    for place, folders, files, handle in os.fwalk(written, follow_symlinks=False):
        inside = place.removeprefix(str(written))
        for name in sorted((*folders, *files)):
            path = f"{inside}/{name}"
            old = None if inside in new else _described(path, below)
            now = _describe(name, handle)
            if old is None and name in folders:
                new.add(path)
            if now != DELETED or old is not None:
                yield path, now, old
            if old is None or not old.startswith("D"):
                continue
            if name in folders and _opaque(Path(place, name)):
                yield from _gone(path, below, set(os.listdir(Path(place, name))))
            elif name not in folders:
                yield from _gone(path, below, set())


def _gone(folder: str, below: Sequence[Path], kept: set[str]) -> Iterator[tuple[str, str, str]]:
    """What lay in a folder of the layers below that is no longer theirs."""
    names = {name for layer in _seen(folder, below) for name in _names(layer, folder)}
    for name in sorted(names):
        path = f"{folder}/{name}"
        old = _described(path, below)
        if old is None:
            continue
        if name not in kept:
            yield path, DELETED, old
        if old.startswith("D") and name not in kept:
            yield from _gone(path, below, set())


def _names(layer: Path, folder: str) -> list[str]:
    place = Path(f"{layer}{folder}")
    return os.listdir(place) if place.is_dir() and not place.is_symlink() else []


def _described(path: str, below: Sequence[Path]) -> str | None:
    """What `path` was in the layers below; None where it was not there."""
    for layer in _seen(path, below):
        try:
            found = _describe(f"{layer}{path}", None)
        except OSError:
            continue
        return None if found == DELETED else found
    return None


def _seen(path: str, below: Sequence[Path]) -> Iterator[Path]:
    """The layers in which `path` may be looked up, the topmost first: down to one that covers the rest."""
    parents = [str(p) for p in reversed(Path(path).parents)][1:]
    for layer in below:
        covered = False
        for parent in parents:
            place = Path(f"{layer}{parent}")
            try:
                found = os.lstat(place)
            except OSError:
                break
            if not stat.S_ISDIR(found.st_mode):
                return
            covered = covered or _opaque(place)
        yield layer
        if covered:
            return


def _describe(name: str, handle: int | None) -> str:
    found = os.stat(name, dir_fd=handle, follow_symlinks=False)
    mode = f"{stat.S_IMODE(found.st_mode):o}"
    base = USER_BASE if found.st_uid >= USER_BASE else 0
    user, group = found.st_uid - base, found.st_gid - base
    owner = f"@{user}:{group}" if base and (user or group) else ""
    if stat.S_ISCHR(found.st_mode):
        return DELETED
    if stat.S_ISDIR(found.st_mode):
        return f"D{mode}{owner}"
    if stat.S_ISLNK(found.st_mode):
        return f"L:{os.readlink(name, dir_fd=handle)}{owner}"
    if stat.S_ISREG(found.st_mode):
        return f"F:{_content(name, handle)}{mode}{owner}"
    return f"P{mode}{owner}"


def _content(name: str, handle: int | None) -> str:
    digest = sha256()
    try:
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
    except PermissionError:
        return "unreadable"  # to an ordinary user outside, but not to root inside
    with open(opened, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()[:16]


def _opaque(folder: Path) -> bool:
    for name in OPAQUE:
        try:
            return os.getxattr(folder, name, follow_symlinks=False) == b"y"
        except OSError:
            continue
    return False
