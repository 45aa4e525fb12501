"""Files and folders that are there whole or not at all: written under another name, synced, then renamed.

A kill or a full disk leaves a draft (`.NAME.draft`) and nothing under the final name, so that the same
command can be given again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from occupancy.record.errors import DataError, InputError


def new_folder(name: str | Path, *, or_empty: bool = False) -> Path:
    """The path of a folder to be made; InputError where something, or more than an empty folder, is there."""
    folder = Path(name)
    if or_empty and folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        return folder
    if folder.exists() or folder.is_symlink():
        raise InputError(f"--out {folder} exists: name a new folder")
    return folder


def new_file(name: str | Path, *, begins: str, what: str, option: str = "--out") -> Path:
    """The path of a file to write; InputError where it cannot be, or where a file of another kind is.

    `what` is the kind, as in "an HTML file", and `begins` what each such file begins with, in lower case.
    """
    file = Path(name)
    special = file.exists() and not file.is_file()  # a folder, a device, a pipe
    if special or not file.parent.is_dir():
        raise InputError(f"{option} {str(name)!r}: expected the name of {what} in a folder that exists")
    if file.is_file():
        with file.open("rb") as handle:
            found = handle.read(len(begins)).lower()
        if found and found != begins.encode():
            raise InputError(f"{option} {file} exists and is not {what}: it is kept; give another name")
    return file


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A draft to fill: it takes the name `folder`, and the place of what is there, when the block ends.

    InputError where another process is filling the same draft.
    """
    draft = folder.with_name(f".{folder.name}.draft")
    with _alone_in(draft, folder):
        try:
            yield draft
            sync(draft)
            if folder.is_dir():
                shutil.rmtree(folder)
            os.rename(draft, folder)
            sync_one(folder.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _alone_in(draft: Path, folder: Path) -> Iterator[None]:
    """Make `draft`, on the way to `folder`, an empty folder that this process fills alone.

    What a kill left in it is removed. InputError where another process is filling it.
    """
    busy = InputError(f"{folder} is being written by another command: wait for it, or name another folder")
    if draft.is_symlink():
        draft.unlink()
    draft.mkdir(parents=True, exist_ok=True)
    handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.path.samestat(os.stat(draft), os.fstat(handle))
        except (BlockingIOError, FileNotFoundError) as error:
            raise busy from error
        if not same:  # the other one was done between the two calls
            raise busy
        for left in draft.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()
        yield
    finally:
        os.close(handle)


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """The name of an empty draft: it takes the name `file`, and the place of what is there, at the end.

    Commands that write the same file at once do so one after the other.
    """
    draft = file.with_name(f".{file.name}.draft")
    handle = _own(draft)
    try:
        yield draft
        sync_one(draft)
        os.replace(draft, file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    else:
        sync_one(file.parent)
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile has the handle, too
        os.close(handle)


def write_whole(file: Path, text: str) -> None:
    """Replace a file's text at once."""
    with whole_file(file) as draft, os.fdopen(open_file(draft, os.O_TRUNC), "w", encoding="utf-8") as handle:
        handle.write(text)


def _own(draft: Path) -> int:
    """Descriptor of a new file that others wait for; what a kill left in its place is removed."""
    while True:
        if draft.is_symlink():
            draft.unlink()
        handle = open_file(draft, os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX)
        held = os.fstat(handle)
        with suppress(FileNotFoundError):  # the other one was done between the two calls
            if os.path.samestat(os.stat(draft), held):
                if held.st_size == 0 and held.st_nlink == 1:
                    return handle
                draft.unlink()
        os.close(handle)


def open_file(file: Path, flags: int) -> int:
    """Descriptor for writing; a symbolic link in the file's place is refused, not followed."""
    try:
        return os.open(file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
        raise DataError(f"{file} is a symbolic link: nothing is written through links; remove it") from error


def sync(folder: Path) -> None:
    """Wait until a folder and all that is in it are on the disk."""
    for each in (*sorted(folder.rglob("*")), folder):
        sync_one(each)


def sync_one(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
