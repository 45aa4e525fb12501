"""JAX in double precision for the length of a block, without changing the setting for anybody else."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from occupancy.errors import MissingExtra


def double_precision() -> AbstractContextManager[Any]:
    """Context in which JAX computes in float64; a missing JAX is named with its pip line."""
    try:
        import jax
    except ImportError as error:
        raise MissingExtra("jax", "simulate") from error
    manager: AbstractContextManager[Any] = jax.enable_x64(True)
    return manager
