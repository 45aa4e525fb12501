"""A batch as a folder of .npy files, mapped into memory, for repeated passes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from occupancy.record.errors import DataError
from occupancy.record.types import Trajectories


def save_arrays(trajectories: Trajectories, folder: str | Path) -> None:
    """Write every column of a batch and n_states as .npy files.

    Raises:
        DataError: The folder is not empty.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise DataError(f"{folder} is not empty: name a new folder")
    for field in fields(trajectories):
        value = getattr(trajectories, field.name)
        if value is not None:
            np.save(folder / f"{field.name}.npy", np.asarray(value))


def open_arrays(folder: str | Path) -> Trajectories:
    """The batch that `save_arrays` wrote, mapped into memory; opening validates it, which reads it once.

    Raises:
        DataError: A column is missing or breaks the contract of `Trajectories`.
    """
    found: dict[str, Any] = {
        file.stem: np.load(file, mmap_mode="r")
        for file in Path(folder).glob("*.npy")
        if file.stem in Trajectories.__dataclass_fields__
    }
    for name in ("offsets", "states", "tasks", "n_states"):
        if name not in found:
            raise DataError(f"{folder} has no {name}.npy: expected a folder written by save_arrays")
    return Trajectories(**found | {"n_states": int(found["n_states"])})
