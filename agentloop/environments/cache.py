"""What is made once and kept for all runs: images of sandboxes, start states, search indexes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder(benchmark: str) -> Path:
    """The cache of a benchmark: XDG_CACHE_HOME/fewsteps/BENCHMARK, in ~/.cache by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fewsteps" / benchmark


def made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`, filled if it is not there; complete or absent, whoever makes it at the same time."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".draft-", dir=folder.parent) as place:
            made = Path(place) / "made"
            made.mkdir()
            fill(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder
