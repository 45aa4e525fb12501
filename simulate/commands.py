"""The commands of this package: `fewsteps plan`. Heavy imports wait until a command runs."""

from __future__ import annotations

import argparse
import json
import sys


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define this package's commands; each sets `handler`, (arguments) -> exit code."""
    plan = subparsers.add_parser(
        "plan",
        help="which K to buy for a budget, from a pilot",
        description="Say which recipe a budget should buy, from a pilot that `fewsteps collect --pilot` "
        "recorded, and which others cannot be told from it.",
    )
    plan.add_argument("run", metavar="RUN", help="the pilot's run folder")
    plan.add_argument(
        "--budget",
        type=float,
        required=True,
        metavar="N",
        help="teacher tokens to buy, the pilot's included; money on the money axis",
    )
    plan.add_argument(
        "--axis",
        choices=("inference", "training", "money"),
        default="inference",
        help="what the budget counts: all teacher output tokens, those of accepted traces, or money",
    )
    plan.add_argument(
        "--already",
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs whose data are sunk: not charged; name the pilot here if it is",
    )
    plan.add_argument(
        "--prices",
        metavar="FILE.toml",
        help="money for a million tokens: output, prompt, cached; and context, fixed for each one",
    )
    plan.add_argument(
        "--pool",
        type=int,
        metavar="N",
        help="tasks that the budget can be spread over (default: the pilot's)",
    )
    plan.add_argument("--seed", type=int, default=0, help="of the bootstrap (default 0)")
    plan.add_argument("--json", action="store_true", help="one JSON object on standard output")
    plan.set_defaults(handler=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    from simulate.plan.costs import Prices
    from simulate.plan.planner import plan
    from simulate.plan.report import collect_command, table

    found = plan(
        arguments.run,
        budget=arguments.budget,
        axis=arguments.axis,
        already=arguments.already,
        prices=Prices.from_toml(arguments.prices) if arguments.prices else None,
        pool=arguments.pool,
        seed=arguments.seed,
    )
    if arguments.json:
        json.dump(found.to_dict(), sys.stdout, indent=2, allow_nan=False)
        sys.stdout.write("\n")
        return 0
    from rich.console import Console

    Console().print(table(found))
    if command := collect_command(found):
        sys.stdout.write(f"{command}\n")
    return 0
