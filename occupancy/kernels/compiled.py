"""The one way in which kernels are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Serial machine code that releases the GIL and is cached on disk; parallel work is a thread pool's."""
    return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]
