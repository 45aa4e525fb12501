"""Files and folders that are there whole or not at all: written under another name, synced, then renamed.

A kill or a full disk leaves a draft (`.NAME.draft`) and nothing under the final name, so that the same
command can be given again.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from occupancy.record.errors import DataError, InputError


def new_folder(name: str | Path, *, option: str = "--out", or_empty: bool = False) -> Path:
    """The path of a folder to be made; InputError where the name is empty or something is there.

    or_empty  an empty folder may be there
    """
    if not str(name).strip():
        raise InputError(f"{option} is empty: name a new folder")
    folder = Path(name)
    if or_empty and folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return folder
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{option} {folder} exists: name a new folder")
    return folder


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A draft to fill: it takes the name `folder`, and the place of what is there, when the block ends."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        sync(draft)
        if folder.is_dir():
            shutil.rmtree(folder)
        os.rename(draft, folder)
        _sync_one(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_whole(file: Path, text: str) -> None:
    """Replace a file's text at once."""
    draft = file.with_name(f".{file.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(open_file(draft, os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as handle:
        handle.write(text)
    sync(draft)
    os.replace(draft, file)
    _sync_one(file.parent)


def open_file(file: Path, flags: int) -> int:
    """Descriptor for writing; a symbolic link in the file's place is refused, not followed."""
    try:
        return os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
        raise DataError(f"{file} is a symbolic link: nothing is written through links; remove it") from error


def sync(path: Path) -> None:
    """Wait until a file, or a folder and the files in it, are on the disk."""
    for each in (*(p for p in sorted(path.rglob("*")) if p.is_file()), path) if path.is_dir() else (path,):
        _sync_one(each)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
