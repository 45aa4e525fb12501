"""`fewsteps check package.module:function`: tries an own environment or policy and names what is missing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from occupancy.record.show import add_json, show, table

if TYPE_CHECKING:
    from agentloop.check import Finding


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `check`."""
    check = commands.add_parser(
        "check",
        help="try an own environment or policy, and name what is missing",
        description="Open, play and replay an environment, or ask a policy for a turn twice; nothing is "
        "stored. docs/own_environment.md shows how to write one.",
    )
    add = check.add_argument
    add("env", metavar="package.module:function", help="returns an environment or a policy")
    add("--tasks", default="train:2", metavar="SPEC", help="tasks to try (default: train:2)")
    add("--policy", metavar="POLICY", help="who plays (default: the environment's first own)")
    add("--env-set", action="append", default=[], metavar="NAME=VALUE", help="environment setting")
    add_json(check)
    check.set_defaults(handler=_check, workers=None)


def _check(given: argparse.Namespace) -> int:
    import asyncio

    kind, findings = asyncio.run(_findings(given))
    good = all(finding.ok for finding in findings)
    rows = [{"what": f.what, "ok": f.ok, "said": f.said} for f in findings]
    report = {"name": given.env, "kind": kind, "ok": good, "findings": rows}
    lines = ((f.what, "ok" if f.ok else "MISSING", f.said) for f in findings)
    heads = ("tried", "", "found")
    show(given, report, lambda: [table(f"{given.env}: {kind}", heads, lines, left=heads)])
    return 0 if good else 1


async def _findings(given: argparse.Namespace) -> tuple[str, list[Finding]]:
    from inspect import iscoroutinefunction

    from agentloop.check import check_environments, check_policy
    from agentloop.commands.arguments import environment_settings
    from agentloop.policies.by_name import ENVIRONMENTS, called, lacks, named, open_policy
    from agentloop.types import Environments
    from occupancy.record.specs import settings

    name = ENVIRONMENTS.get(given.env, given.env)
    function = named(name)
    if iscoroutinefunction(function):
        return "policy", await check_policy(function)
    texts = [f"{setting}={value}" for setting, value in environment_settings(given).items()]
    made: Any = called(function, f"{given.env!r}", **settings(function, texts, of=f"{given.env!r}"))
    if callable(made) and lacks(made, Environments):
        return "policy", await check_policy(made)
    policy = open_policy(given.policy, made) if given.policy and not lacks(made, Environments) else None
    return "environment", await check_environments(made, given.tasks, policy=policy)
