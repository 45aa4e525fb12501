"""The scripted teacher: it looks around, runs the reference command, checks what came of it, and says so.

It plays from any state that a student left: a program that holds the terminal is interrupted, files that were
made besides are removed, and a task that is solved already is only confirmed. What was destroyed it cannot
bring back: then it says that it is done, and fails. What it plays depends on the episode alone.
"""

from __future__ import annotations

import re
import shlex

from agentloop.policies.scripted import BoundedScript
from agentloop.types import Ask, Policy, PolicyFailed

from ..episode import View
from ..sandbox.changes import DELETED
from ..tasks.nl2bash import typed
from ..terminus.protocol import turn_text

NAME = "expert"
LOOK_S, RUN_S = 0.1, 1.0
_PATH = re.compile(r"(?<![\w/.*])/[\w.-]+(?:/[\w.-]+)*")


def scripted_teacher() -> Policy:
    """A policy that plays what `teach` says."""

    async def play(ask: Ask) -> str:
        view: View = await ask.env.ask("view")
        return teach(view)

    return BoundedScript(play, most=512)


def teach(view: View) -> str:
    """The teacher's turn; PolicyFailed for a task without a reference command."""
    if view.expected is None:
        raise PolicyFailed("the scripted teacher needs a task with a reference command")
    ran = typed(view.reference) in view.typed
    looked = look_at_result(view) in view.typed
    if view.solved and view.pending:
        return turn_text("The result is right.", "Confirm that the task is complete.", [], complete=True)
    if view.solved and ran and not looked and not view.expected.printed and view.expected.changed:
        plan = "Look whether the files are as they should be."
        return turn_text("The command has run without an error.", plan, [(look_at_result(view), LOOK_S)])
    if view.solved:
        return turn_text("What was asked for is there.", "Say that the task is complete.", [], complete=True)
    if not view.typed:
        plan = "Look at the files that the task names, then run one command that does it."
        return turn_text("Nothing has been done yet.", plan, [(look_around(view), LOOK_S)])
    if ran and view.at_prompt and not view.made:
        told = "The command does not give what it should from here: something that it needs is gone."
        return turn_text(told, "Nothing more can be done.", [], complete=True)
    return turn_text(_reason(view), f"Run: {view.reference}", solve(view))


def solve(view: View) -> list[tuple[str, float]]:
    """Keystrokes that clear the way and run the reference command."""
    clear = [] if view.at_prompt else [("C-c", LOOK_S)]
    clear += [(f"rm -rf -- {shlex.quote(path)}\n", LOOK_S) for path in view.made]
    ended = [("C-d", LOOK_S)] if view.expected and view.expected.reads else []
    return [*clear, (typed(view.reference), RUN_S), *ended]


def look_around(view: View) -> str:
    """A command line that shows the first place that the reference command names."""
    found = _PATH.search(view.reference)
    return f"ls -la {found[0] if found else '/'}\n"


def look_at_result(view: View) -> str:
    """A command line that shows some of the files that should have changed."""
    changed = view.expected.changed if view.expected else {}
    kept = [path for path, told in changed.items() if told != DELETED] or list(changed)
    return f"ls -ld {' '.join(shlex.quote(path) for path in kept[:3])}\n"


def _reason(view: View) -> str:
    if not view.at_prompt:
        return "A program still has the terminal."
    return "There are files that nobody asked for." if view.made else "The files are known well enough."
