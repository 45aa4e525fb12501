"""A command of fewsteps in a process of its own: progress is shown, output kept, and it dies with us."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from occupancy.record.errors import RunError
from occupancy.record.show import say

SHOWN = ("train: ", "evaluate: ", "fewsteps ")
"""Beginnings of the lines that are shown; models and engines write many others, which are in the log."""
_PR_SET_PDEATHSIG = 1


def run_command(arguments: list[str], log: Path) -> dict[str, Any]:
    """The JSON that a command of fewsteps printed; RunError with its last line where it failed.

    Args:
        arguments: of Python.
        log: gets the command line and everything that it says, as it says it.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    last = "no message"
    with log.open("a", encoding="utf-8") as kept, tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        kept.write(f"$ {' '.join(arguments)}\n")
        with subprocess.Popen(
            [sys.executable, *arguments],
            stdout=answer,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                kept.write(line)
                kept.flush()
                last = line.strip() or last
                if line.startswith(SHOWN):
                    say(line)
        answer.seek(0)
        said = [line for line in answer.read().splitlines() if line.startswith("{")]
    if process.returncode or not said:
        raise RunError(
            f"{last} (whole output: {log}); trainings made before are kept, the same command goes on"
        )
    found: dict[str, Any] = json.loads(said[-1])
    return found


def _die_with_parent() -> None:
    """Ask Linux to end this process when its parent is killed: else it would train on beside the next one."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
