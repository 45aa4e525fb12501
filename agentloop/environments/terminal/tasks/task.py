"""What a terminal task is, whatever its format: the words, the start state, and how it is graded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from agentloop.types import EnvironmentFailed

from ..sandbox.launch import VARIABLES
from ..sandbox.limits import Limits
from ..sandbox.sandbox import Sandbox, open_sandbox
from ..terminus.screen import Screen, open_screen
from .dockerfile import Built

HOME = VARIABLES["HOME"]
SCRATCH = ("/tmp/", "/var/tmp/", f"{HOME}/.")
"""Where changes are not compared, by the start of the path."""


class GradeFailed(EnvironmentFailed):
    """A verifier gave no reward, or none that is a finite number: the episode has no reward, and is not 0."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the reference command does: a checker's golden result."""

    changed: Mapping[str, str]
    """As `changes` tells them."""
    printed: str | None
    """What the last command line printed, normalised; empty is not compared; None before the first line."""
    stable: tuple[str, ...] | None = None
    """Lines that it prints every time, where what it prints differs from one time to the next."""
    reads: bool = False
    """Whether it reads the terminal, so that its input has to be ended with C-d."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Compared where it neither changes nor prints anything: files that it wrote as they were."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one episode is played."""

    screen: Screen
    grade: Callable[[], Awaitable[float]]
    """The reward R in [0, 1] of an episode that is over; may end every process inside."""
    sandbox: Sandbox | None = None
    """Where it is a local one: its files can be compared, and scripted policies can look at them."""
    solved: Callable[[], Awaitable[bool]] | None = None
    """Whether it would be graded 1 now, asked by scripted policies while the episode goes on."""


@dataclass(frozen=True, slots=True)
class TerminalTask:
    """One task, ready to be played."""

    instruction: str
    open: Callable[[str], AbstractAsyncContextManager[Place]]
    """Starts an episode; the text says how commands are waited for, settled or timed."""
    reference: str = ""
    """A command that solves it, for scripted policies; empty where there is none."""
    expected: Callable[[], Awaitable[Expected]] | None = None
    agent_s: float | None = None
    """Seconds after which an episode ends, and is graded as it is; None = no limit."""


def in_sandbox(
    start: Callable[[], Awaitable[Built]],
    grade: Callable[[Sandbox, Screen], Awaitable[float]],
    solved: Callable[[Sandbox, Screen], Awaitable[bool]] | None = None,
    *,
    limits: Limits | None = None,
) -> Callable[[str], AbstractAsyncContextManager[Place]]:
    """How a task is opened in a local sandbox; `grade` and `solved` become those of its `Place`."""

    @asynccontextmanager
    async def opened(mode: str) -> AsyncIterator[Place]:
        built = await start()
        async with open_sandbox(built.layers, limits=limits, cwd=built.cwd) as sandbox:
            screen = await open_screen(sandbox, mode=mode, cwd=built.cwd)
            asked = partial(solved, sandbox, screen) if solved else None
            yield Place(screen, partial(grade, sandbox, screen), sandbox, asked)

    return opened
