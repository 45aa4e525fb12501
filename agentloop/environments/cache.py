"""What is made once and kept for all runs: images of sandboxes, start states, search indexes."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from occupancy.record.errors import InputError

_DRAFT = ".draft-"
KILLED_S = 24 * 3600.0
"""Age from which on a draft is what a kill left: nothing takes so long to make."""


def cache_folder(benchmark: str) -> Path:
    """The cache of a benchmark: XDG_CACHE_HOME/fewsteps/BENCHMARK, in ~/.cache by default.

    Raises:
        InputError: it is not there, and cannot be made.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(caches) / "fewsteps" / benchmark
    _make(folder)
    return folder


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`, filled if it is not there; complete or absent, whoever makes it at the same time."""
    if not folder.exists():
        _make(folder.parent)
        for left in folder.parent.glob(f"{_DRAFT}*"):
            with suppress(FileNotFoundError):  # another process has just moved it to its place
                if time.time() - left.stat().st_mtime > KILLED_S:
                    shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=folder.parent) as place:
            made = Path(place) / "made"
            made.mkdir()
            fill(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder


def _make(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{cache} cannot be made ({error.strerror}): name another cache with XDG_CACHE_HOME"
        ) from error
