"""JAX, where it is installed: double precision for the length of a block, and a typed `jit`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from occupancy.record.errors import imported

F = TypeVar("F", bound=Callable[..., object])


def double_precision() -> AbstractContextManager[Any]:
    """Context in which JAX computes in float64; nobody else's setting changes. Names a missing JAX."""
    manager: AbstractContextManager[Any] = imported("jax", "simulate").enable_x64(True)
    return manager


def jitted(*static: str) -> Callable[[F], F]:
    """Decorator: compile for each shape and for each value of the static arguments."""

    def decorate(function: F) -> F:
        return imported("jax", "simulate").jit(function, static_argnames=static)  # type: ignore[no-any-return]

    return decorate
