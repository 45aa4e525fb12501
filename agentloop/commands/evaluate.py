"""`fewsteps evaluate`: policies on tasks, several times, with standard errors both ways."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.commands.arguments import add_playing
from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Few, option

if TYPE_CHECKING:
    from agentloop.types import Policy
    from occupancy.runs import Run


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `evaluate`."""
    command = commands.add_parser(
        "evaluate",
        help="play tasks several times with a policy, and say how often it succeeds",
        description="Evaluate policies. The same command on the same folder goes on where it was stopped.",
    )
    command.add_argument(
        "--policy",
        required=True,
        action="append",
        help="what is evaluated, e.g. scripted; given several times, each is evaluated into OUT/NAME, and "
        "checkpoints of one model share one engine",
    )
    command.add_argument("--attempts", type=option(Few), default=8, help="attempts a task (default: 8)")
    add_playing(command, required=True)
    add_json(command)
    command.set_defaults(handler=_evaluate)


def _evaluate(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.run.evaluate import summarise_evaluation
    from agentloop.run.summary import cut_turns

    runs, cautions = asyncio.run(_run(given))
    summaries = [summarise_evaluation(run) for run in runs]
    for summary in summaries:
        summary["cautions"] = [*cut_turns("attempts", summary["status"]), *cautions]
    report = summaries[0] if len(given.policy) == 1 else {"evaluations": summaries}
    show(given, report, lambda: (part for summary in summaries for part in _shown(summary)))
    return 0


async def _run(given: argparse.Namespace) -> tuple[list[Run], list[str]]:
    from agentloop.commands.arguments import end_on, environment_settings, opened_policies
    from agentloop.policies.by_name import open_environments
    from agentloop.policies.chat_spec import identity
    from agentloop.run.collect import tasks_of
    from agentloop.run.evaluate import Evaluation, evaluate
    from agentloop.types import Cautions

    folders = _folders(given.out, [identity(policy) for policy in given.policy])
    environments = open_environments(given.env, **environment_settings(given))

    async def evaluated(spec: str, policy: Policy, folder: Path) -> Run:
        settings = Evaluation(identity(spec), given.tasks, given.attempts, given.seed, end_on=end_on(given))
        with progress("evaluate") as advance:
            return await evaluate(
                folder,
                settings,
                environments=environments,
                policy=policy,
                progress=lambda done, total, rows: advance(done, total),
            )

    several = len(given.policy) > 1
    async with opened_policies(environments, *given.policy, one_engine=several) as policies:
        each = zip(given.policy, policies, folders, strict=True)
        runs = [await evaluated(*one) for one in each]
        tasks = tasks_of(environments, given.tasks, seed=given.seed)
        return runs, list(environments.cautions(tasks)) if isinstance(environments, Cautions) else []


def _folders(out: str, policies: list[str]) -> list[Path]:
    """OUT for one policy; OUT/NAME for each of several, after what the policy is called."""
    from occupancy.record.errors import InputError

    if len(policies) == 1:
        return [Path(out)]
    names = [re.sub(r"[^\w.=-]+", "-", policy).strip("-.") for policy in policies]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not all(names):
        raise InputError(
            f"--policy: two of them would share the folder {Path(out) / (twice or [''])[0]}; evaluate one of "
            f"them in a call of its own"
        )
    return [Path(out) / name for name in names]


def _shown(summary: dict[str, Any]) -> Iterator[Any]:
    heads = ("of", "success", "95 %", "SE task", "SE runs", "attempts", "tasks", "runs")
    rows, intervals = [], set[str]()
    for name, row in (("all", summary["success"]), ("scored", summary["success_of_scored"])):
        if row is not None:
            errors = ("-" if row[e] is None else f"{row[e]:.4f}" for e in ("cluster_se", "evaluation_se"))
            counts = (row[count] for count in ("n", "clusters", "evaluations"))
            between = "-" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
            rows.append((name, f"{row['mean']:.4f}", between, *errors, *counts))
            intervals.add(str(row["interval"]))
    yield table(f"{summary['folder']}: {summary['policy']}", heads, rows, left=("of",))
    ended = ", ".join(f"{status} {count}" for status, count in summary["status"].items())
    yield (
        "scored: attempts with a reward. SE task: clustered by task. SE runs: over runs, sampling noise "
        "only; a run is one attempt at every task."
    )
    if "wilson" in intervals:
        yield "95 %: Wilson's interval, as all tasks had the same success."
    yield f"ended as: {ended}; mean length {summary['mean_length']:.2f} turns"
    yield from summary["cautions"]
