"""The command `fewsteps`: mounts each package's own commands and turns errors into exit codes.

0 done, 1 failed, 2 bad usage or bad input, 3 stopped at the budget (the run can be resumed). Nothing
heavy is imported before a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from agentloop.entry import hidden_package
from occupancy.record.errors import InputError, own_version
from occupancy.record.show import Parser, command_line, say

MOUNTED = (
    "analysis.demo",
    "agentloop.commands.doctor",
    "agentloop.commands.check",
    "agentloop.commands.evaluate",
    "agentloop.commands.collect",
    "agentloop.commands.serve",
    "analysis.plan.commands",
    "agentloop.commands.cut",
    "analysis.spend.commands",
    "analysis.study.commands",
    "analysis.compare.commands",
    "sft.commands",
    "agentloop.commands.ledger",
    "analysis.report.commands",
    "analysis.view.commands",
    "agentloop.commands.traces",
    "agentloop.commands.export",
    "analysis.publish.commands",
    "occupancy.import_commands",
    "occupancy.commands",
    "simulate.commands",
    "analysis.validate.commands",
)
"""In the order of `fewsteps --help`."""


def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="fewsteps",
        description="How to spend an expensive teacher: predict it from a pilot, then do it and check.",
    )
    told = f"fewsteps {own_version()}"
    top.add_argument("--version", action="version", version=told, help="print it and exit")
    commands = top.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for module in MOUNTED:
        import_module(module).add_commands(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        say("fewsteps: the working folder was removed or moved: change to one that exists")
        return InputError.exit_code
    if here not in sys.path:
        # For modules that a user names; last, so that they hide nothing that is installed.
        sys.path.append(here)
    if hidden := hidden_package():
        say(f"fewsteps: {hidden}")
        return InputError.exit_code
    return command_line(parser(), arguments)


if __name__ == "__main__":
    raise SystemExit(main())
