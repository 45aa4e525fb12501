"""A tmux session in a sandbox: keys in, and out what Terminus-2 would show of the screen.

Two ways to wait after keys: `timed` sleeps for the seconds that the turn asks for, as Terminus-2 does, so
that what is seen depends on the machine's speed; `settled` waits until the terminal waits for input
(waiting.py).
"""

from __future__ import annotations

import asyncio
import base64
import re
import shlex
import time
from typing import TYPE_CHECKING, Final, Literal, Protocol

from agentloop.awake import awake_clock

from ..sandbox.sandbox import Ran, Sandbox, SandboxFailed
from .waiting import ACCEPTED, PROMPT, Terminal, inside_number

if TYPE_CHECKING:
    from .elsewhere import ScreenAlone

WIDTH, HEIGHT, HISTORY = 160, 40, 10_000_000
LONGEST_KEYS = 16_000
"""Bytes of one command's keys that are typed; longer ones are pasted."""
PIECE = 64 << 10
FOLDER = "/run/terminal"
SESSION = "terminus-2"
TMUX = f"tmux -S {FOLDER}/socket -f /dev/null"
WRITE_LOG = f"cat > {FOLDER}/log"
LONGEST_LOG = 1 << 20
"""Bytes of the terminal's raw output that are kept and looked at."""
Mode = Literal["settled", "timed"]
SETTLED: Final = "settled"
TIMED: Final = "timed"
PATIENCE_S = 15.0
"""Seconds that `settled` waits at least for a command that goes on."""
ENTER_S = 0.05
"""Seconds after which the Enter of a line is pressed."""
FLUSH_S = 2.0
_PROMPT_TEXT = re.compile(rb"\S+@\S+:[^\r\n]*?[#$] ")
_CONTROL = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_()].?)")


class Machine(Protocol):
    """What runs commands beside the terminal: a sandbox, or a container somewhere."""

    async def run(self, command: str) -> Ran:
        """Run a command and wait for it."""


class Screen:
    """The terminal of one episode; made by `open_screen`, or by `elsewhere.open_screen_elsewhere`."""

    def __init__(self, sandbox: Machine, terminal: Terminal | ScreenAlone, *, mode: str) -> None:
        self.sandbox, self._terminal, self.mode = sandbox, terminal, mode
        self._before: str | None = None

    async def type(self, keys: str, seconds: float) -> None:
        """Type keys, or press the key that they name (C-c, Enter), and wait.

        Of several lines the last is typed by itself: the shell has shown its prompt many times before it.
        """
        started, most_s = time.monotonic(), max(seconds, PATIENCE_S)
        if self._terminal.size > LONGEST_LOG:
            await self._new_log()
        # Where nobody waits for an answer, Enter must not come after the next keys.
        line = self.mode != TIMED and self.at_prompt() and keys.endswith("\n")
        long = len(keys.encode()) > LONGEST_KEYS
        if line and not long and "\n" in keys[:-1]:
            before, _, last = keys[:-1].rpartition("\n")
            typed = shlex.quote(f"{before}\n")
            await self._tmux(f"send-keys -l -t {SESSION} -- {typed}")
            await self._terminal.settled(most_s=most_s)
            return await self.type(f"{last}\n", seconds)
        typed_at = self._terminal.size if line and not long else None
        if long:
            packed = base64.b64encode(keys.encode()).decode()
            for i in range(0, len(packed), PIECE):  # one argument of a command has a limit
                await self.sandbox.run(f"echo {packed[i : i + PIECE]} >> {FOLDER}/keys")
            paste = f"load-buffer - \\; paste-buffer -d -t {SESSION}; rm {FOLDER}/keys"
            await self._tmux(paste, f"base64 -d {FOLDER}/keys | ")
        elif line:
            # Enter is pressed when the processes that brought the keys are gone: a command may list them. The
            # line is text (-l), also where it is a key's name, as the END of a heredoc.
            await self._tmux(
                f"send-keys -l -t {SESSION} -- {_argument(keys[:-1])} \\; "
                f"run-shell -b -d {ENTER_S} -C 'send-keys -t {SESSION} Enter'"
            )
        else:
            await self._tmux(f"send-keys -t {SESSION} -- {_argument(keys)}")
        if self.mode == TIMED:
            await asyncio.sleep(max(0.0, seconds - (time.monotonic() - started)))
        else:
            await self._terminal.settled(most_s=most_s, typed_at=typed_at)

    async def output(self) -> str | None:
        """What is new since the last call, or the screen where that cannot be told; None if it is gone."""
        ran = await self.sandbox.run(f"{TMUX} capture-pane -p -S - -t {SESSION}")
        if ran.code or not self._terminal.alive:
            return None
        whole = ran.output.decode("utf-8", "replace")
        before, self._before = self._before, whole
        new = None if before is None else new_lines(before, whole)
        if new is not None and new.strip():
            return f"New Terminal Output:\n{new}"
        return f"Current Terminal Screen:\n{await self._tmux(f'capture-pane -p -t {SESSION}')}"

    async def last_output(self) -> str | None:
        """What the last command line printed, without the terminal's control codes; None before the first."""
        clock = awake_clock()
        while True:
            _, log = self._terminal.tail(LONGEST_LOG)
            # The log is written by a process of its own, which may be a little late.
            if log.rfind(PROMPT) > log.rfind(ACCEPTED) or not self.at_prompt() or clock() > FLUSH_S:
                return last_printed(log)
            await asyncio.sleep(0.01)

    def at_prompt(self) -> bool:
        """Whether the shell itself has the terminal, rather than a program that it started."""
        return self._terminal.at_prompt()

    async def _new_log(self) -> None:
        """Begin the log anew: a program that prints without end has filled it."""
        await self._tmux(f"pipe-pane -t {SESSION}")
        await self._tmux(f"pipe-pane -t {SESSION} {shlex.quote(WRITE_LOG)}", f"rm -f {FOLDER}/log; ")

    async def _tmux(self, command: str, before: str = "") -> str:
        ran = await self.sandbox.run(f"{before}{TMUX} {command}")
        return ran.output.decode("utf-8", "replace")


def _argument(keys: str) -> str:
    """Keys for tmux, which takes a semicolon at an argument's end as its own, and `\\;` as a semicolon."""
    return shlex.quote(f"{keys[:-1]}\\;" if keys.endswith(";") else keys)


def new_lines(before: str, whole: str) -> str | None:
    """What of a terminal's text is new, from the last line of what was there before; None if that is gone."""
    known = before.strip()
    if known not in whole:
        return None
    return whole[known.rfind("\n") :] if "\n" in known else whole[whole.index(known) :]


def last_printed(log: bytes) -> str | None:
    """The output of the last command line in a terminal's raw text; None where there was no line."""
    _, line, printed = log.rpartition(ACCEPTED)
    if not line:
        return None if len(log) < LONGEST_LOG else ""
    # What a process in the background prints may come after the next prompt, and is part of it.
    early, _, late = printed.partition(PROMPT)
    text = _CONTROL.sub(b"", early + _PROMPT_TEXT.sub(b"", late)).decode("utf-8", "replace")
    return text.replace("\r\n", "\n").lstrip("\r")


async def open_screen(sandbox: Sandbox, *, mode: str = SETTLED, cwd: str = "/") -> Screen:
    """Start the terminal of an episode, with a login shell at its prompt.

    Raises:
        SandboxFailed: there is no tmux in the image, or it does not start.
    """
    log = f"pipe-pane -t {SESSION} {shlex.quote(WRITE_LOG)} \\; "
    found = await start_tmux(sandbox, f"-c {shlex.quote(cwd)}", log)
    numbers = {inside_number(pid): pid for pid in sandbox.pids()}
    shell, server = (numbers.get(number, 0) for number in found)
    terminal = Terminal(shell, server, sandbox.root, f"{FOLDER}/log")
    await terminal.settled(most_s=PATIENCE_S, typed_at=-1)
    return Screen(sandbox, terminal, mode=mode)


async def start_tmux(machine: Machine, options: str = "", then: str = "") -> tuple[int, int]:
    """Start the session of an episode; the numbers of its shell and of the server, as the machine counts.

    `options` are those of new-session; each further command of tmux in `then` ends in an escaped semicolon.

    Raises:
        SandboxFailed: there is no tmux, or it does not start.
    """
    ran = await machine.run(
        f"mkdir -p {FOLDER} && export TERM=xterm-256color SHELL=/bin/bash && {TMUX} new-session -x {WIDTH} "
        f"-y {HEIGHT} -d -s {SESSION} {options} 'bash --login' \\; "
        f"{then}set-option -g history-limit {HISTORY} \\; "
        f"display-message -p -t {SESSION} '#{{pane_pid}} #{{pid}}'",
    )
    found = re.fullmatch(rb"(\d+) (\d+)\n", ran.output)
    if found is None:
        told = ran.output.decode(errors="replace").strip()
        raise SandboxFailed(f"tmux does not start in the image: {told[:200] or ran.code}")
    return int(found[1]), int(found[2])
