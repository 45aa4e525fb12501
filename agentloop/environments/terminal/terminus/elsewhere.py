"""A terminal on a machine of which only commands can be run: a container of Harbor, say.

Nothing of it can be seen in /proc, so `settled` asks tmux: a command has ended when the shell has the
terminal and the screen has not changed for a moment. What is shown may depend on the machine's speed.
"""

from __future__ import annotations

import asyncio
import time

from .screen import PATIENCE_S, SESSION, TMUX, Machine, Screen, start_tmux

STILL_S = 0.5
"""Seconds without a change after which the screen is taken to be complete."""
SHELLS = ("bash", "sh", "dash", "zsh")


class ScreenAlone:
    """In the place of `waiting.Terminal`: nothing is known but what the screen shows."""

    size = 0
    alive = True

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def settled(self, *, most_s: float, typed_at: int | None = None) -> bool:
        """Wait until the shell has the terminal and the screen is still; False after `most_s`."""
        end, before = time.monotonic() + most_s, b""
        while True:
            ran = await self._machine.run(
                f"{TMUX} display-message -p -t {SESSION} '#{{pane_current_command}}' "
                f"&& {TMUX} capture-pane -p -t {SESSION}"
            )
            program = ran.output.split(b"\n", 1)[0].decode("utf-8", "replace")
            if ran.code or (ran.output == before and program.lstrip("-") in SHELLS):
                return True
            if time.monotonic() >= end:
                return False
            before = ran.output
            await asyncio.sleep(STILL_S)

    def at_prompt(self) -> bool:
        """Not known, so False: keys are typed as they are."""
        return False

    def tail(self, most: int) -> tuple[int, bytes]:
        """Nothing: the raw output is not kept."""
        return 0, b""


async def open_screen_elsewhere(machine: Machine, *, mode: str) -> Screen:
    """Start the terminal of an episode in the machine's own working folder.

    Raises:
        SandboxFailed: there is no tmux on the machine, or it does not start.
    """
    terminal = ScreenAlone(machine)
    await start_tmux(machine)
    await terminal.settled(most_s=PATIENCE_S)
    return Screen(machine, terminal, mode=mode)
