"""What was changed in a sandbox, read from the folders that overlayfs writes to, and a hash of it.

A change is told as text: `F:` with the first 16 digits of the content's SHA-256 and the mode, `L:` with a
link's target, `D` with a folder's mode, `P` with the mode of a pipe or socket, or `DELETED`. Owners other
than root are added as `@user:group`. Times are no part of it, so equal work gives equal changes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path

from .launch import USER_BASE, Layers
from .sandbox import Sandbox

DELETED = "DELETED"
OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")


def changes(sandbox: Sandbox, *, rewritten: bool = False) -> dict[str, str]:
    """Every path whose content, kind, mode or owner differs from what the sandbox started from.

    Nothing inside should run meanwhile: see `Sandbox.halt`.

    Args:
        sandbox: the sandbox that is looked at, from outside.
        rewritten: whether paths that were written as they had been are told too.
    """
    found: dict[str, str] = {}
    layers = {"/": sandbox.layers.root, "/usr": sandbox.layers.usr}
    for mount, written in sandbox.written.items():
        prefix = "" if mount == "/" else mount
        for path, told in _changed(written, layers[mount], rewritten):
            if not (mount == "/" and path == "/usr" and sandbox.layers.usr):
                found[prefix + path] = told
    return dict(sorted(found.items()))


def before(path: str, layers: Layers) -> str | None:
    """What a path was at the start; None where there was nothing."""
    if layers.usr and path.startswith("/usr/"):
        return _described(path.removeprefix("/usr"), layers.usr)
    return _described(path, layers.root)


def state_hash(changed: Mapping[str, str]) -> int:
    """A positive number of 63 bits for a state: equal for equal changes."""
    digest = blake2b(digest_size=8)
    for path, told in sorted(changed.items()):
        for part in (path, told):
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "big") + data)
    return int.from_bytes(digest.digest(), "big") >> 1


def _changed(written: Path, below: Sequence[Path], rewritten: bool) -> Iterator[tuple[str, str]]:
    for place, folders, files, handle in os.fwalk(written, follow_symlinks=False):
        inside = place.removeprefix(str(written)) or "/"
        for name in sorted((*folders, *files)):
            path = f"{inside.rstrip('/')}/{name}"
            old = _described(path, below)
            now = _describe(name, handle)
            if (rewritten or now != old) and not (now == DELETED and old is None):
                yield path, now
            if name in folders and _opaque(Path(place, name)):
                kept = set(os.listdir(Path(place, name)))
                yield from _gone(path, below, kept)
            elif name not in folders and old is not None and old.startswith("D"):
                yield from _gone(path, below, set())


def _gone(folder: str, below: Sequence[Path], kept: set[str]) -> Iterator[tuple[str, str]]:
    """What lay in a folder of the layers below that is no longer theirs."""
    names = {name for layer in _seen(folder, below) for name in _names(layer, folder)}
    for name in sorted(names):
        path = f"{folder}/{name}"
        old = _described(path, below)
        if old is None:
            continue
        if name not in kept:
            yield path, DELETED
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
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
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
