"""One terminal task as an `Environment`: a sandbox, a terminal in it, and the turns of Terminus-2.

An episode ends when the task is said to be complete twice in a row, when the terminal is gone, or with turn
T_max; however it ends, it is graded, as Harbor does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agentloop.policies import scripted
from agentloop.types import Message, Reply
from occupancy.record.errors import InputError

from .comparing import comparable_changes, comparable_text
from .sandbox.changes import before, changes, state_hash
from .sandbox.sandbox import Sandbox, SandboxFailed
from .tasks.task import SCRATCH, Expected, Place, TerminalTask
from .terminus.prompts import Template
from .terminus.protocol import Parsed, after_commands, after_error, parse_turn, shortened
from .terminus.screen import Screen


@dataclass(frozen=True, slots=True)
class Rules:
    """What an episode depends on besides its task."""

    T_max: int
    mode: str
    """settled or timed: how commands are waited for."""
    template: Template
    timeout_factor: float = 1.0
    """Multiplies the seconds that tasks give an agent; part of a run's version, since it changes scores."""


@dataclass(frozen=True, slots=True)
class View:
    """What a scripted policy sees: the task's reference, and what has been done so far."""

    reference: str
    expected: Expected | None
    typed: tuple[str, ...]
    """Keystrokes of all commands so far."""
    pending: bool
    """Whether the last turn said that the task is complete."""
    solved: bool
    """Whether the episode would be graded 1 if it ended now."""
    made: tuple[str, ...]
    """Files and folders that were made and are not part of the expected result, the outermost alone."""
    at_prompt: bool
    """Whether the shell has the terminal, rather than a program in it."""


class TerminalEpisode:
    """One open task; an `Environment`."""

    def __init__(self, task: TerminalTask, rules: Rules) -> None:
        self._task, self._rules = task, rules
        self._open = AsyncExitStack()
        self._place: Place | None = None
        self._typed: list[str] = []
        self._turns, self._pending, self._over, self._began = 0, False, False, 0.0

    async def reset(self, seed: int) -> Reply:
        """Start an episode in a new sandbox; nothing in it is drawn, so every seed gives the same one."""
        await self.close()
        self._typed.clear()
        self._turns, self._pending, self._over = 0, False, False
        place = await self._open.enter_async_context(self._task.open(self._rules.mode))
        self._place, self._began = place, time.monotonic()
        return Reply(shortened(await place.screen.output() or ""), state_id=await _state(place))

    async def step(self, text: str) -> Reply:
        """Play one turn of the protocol."""
        if self._place is None or self._over:
            raise InputError("step before reset, or after the end of the episode")
        place, parsed = self._place, parse_turn(text)
        self._turns += 1
        last = self._late() or self._turns >= self._rules.T_max
        if parsed.error:
            # The flag stays: complete, then garbage, then complete again is a confirmation.
            return await self._reply(place, after_error(parsed), parsed.status, done=last)
        seen = await self._play(place.screen, parsed)
        if seen is None:
            return await self._reply(place, "The terminal is gone.", "gone", done=True)
        seen = shortened(seen)
        confirmed = parsed.complete and self._pending
        self._pending = parsed.complete
        told = seen if confirmed else after_commands(parsed, seen)
        return await self._reply(place, told, parsed.status, done=confirmed or last)

    async def _play(self, screen: Screen, parsed: Parsed) -> str | None:
        """Type a turn's commands until time is over; what is seen then, None where the terminal is gone."""
        try:
            for command in parsed.commands:
                await screen.type(command.keystrokes, command.duration_s)
                self._typed.append(command.keystrokes)
                if self._late():
                    break
            return await screen.output()
        except SandboxFailed:
            return None  # by the agent's doing: what it left is graded, where there is anything left

    def _late(self) -> bool:
        limit = self._task.agent_s
        return limit is not None and time.monotonic() - self._began > limit * self._rules.timeout_factor

    def prompt(self, first: Reply) -> Sequence[Message]:
        """One message: the protocol, the task, and the terminal."""
        text = self._rules.template.fill(self._task.instruction, first.observation)
        return [Message("user", text, author="task")]

    async def ask(self, question: str, **arguments: Any) -> Any:
        """`view`: what a scripted policy sees."""
        scripted.check_question(question, arguments, "view")
        place = self._place
        if place is None or place.sandbox is None:
            raise InputError("a scripted policy asked for a view: expected an open local sandbox")
        expected = await self._task.expected() if self._task.expected else None
        solved = place.solved is not None and await place.solved()
        return View(
            self._task.reference,
            expected,
            tuple(self._typed),
            self._pending,
            solved,
            await _made(place.sandbox, expected.changed if expected else {}),
            place.screen.at_prompt(),
        )

    def normalise(self, text: str) -> str:
        """What a replay compares in place of a text."""
        return comparable_text(text)

    async def close(self) -> None:
        """End the sandbox."""
        self._place = None
        await self._open.aclose()

    async def _reply(self, place: Place, told: str, status: str, *, done: bool) -> Reply:
        state = await _state(place)
        if not done:
            return Reply(told, parse_status=status, state_id=state)
        self._over = True
        reward = await place.grade()
        await self.close()
        return Reply(told, done=True, reward=reward, parse_status=status, state_id=state)


async def _made(sandbox: Sandbox, wanted: Mapping[str, str]) -> tuple[str, ...]:
    """What was made and not wanted, the outermost alone."""
    made = [
        path
        for path in await _changes(sandbox) or {}
        if path not in wanted and not path.startswith(SCRATCH) and before(path, sandbox.layers) is None
    ]
    outermost: list[str] = []
    for path in sorted(made, key=lambda path: path.split("/")):
        if not (outermost and path.startswith(f"{outermost[-1]}/")):
            outermost.append(path)
    return tuple(outermost)


async def _state(place: Place) -> int | None:
    changed = await _changes(place.sandbox) if place.sandbox else None
    return None if changed is None else state_hash(comparable_changes(changed))


async def _changes(sandbox: Sandbox) -> dict[str, str] | None:
    """What is changed now; None where processes that still run change it whenever it is read."""
    for _ in range(3):
        try:
            return await asyncio.to_thread(changes, sandbox)
        except OSError:
            continue
    return None
