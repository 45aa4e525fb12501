"""`fewsteps evaluate`: a policy on tasks, several times, with standard errors both ways."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from agentloop.commands.arguments import add_playing
from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Few, option


def add_evaluate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `evaluate`."""
    command = commands.add_parser(
        "evaluate",
        help="play tasks several times with one policy, and say how often it succeeds",
        description="Evaluate a policy. The same command on the same folder goes on where it was stopped.",
    )
    command.add_argument("--policy", required=True, help="what is evaluated, e.g. scripted")
    command.add_argument("--attempts", type=option(Few), default=8, help="attempts a task (default: 8)")
    add_playing(command, required=True)
    add_json(command)
    command.set_defaults(handler=_evaluate)


def _evaluate(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.run.evaluate import summarise_evaluation

    evaluated, cautions = asyncio.run(_run(given))
    summary = summarise_evaluation(evaluated) | {"cautions": cautions}
    show(given, summary, lambda: _shown(summary))
    return 0


async def _run(given: argparse.Namespace) -> tuple[Any, list[str]]:
    from agentloop.commands.arguments import environment_settings, opened_policies
    from agentloop.policies.by_name import open_environments
    from agentloop.policies.chat_spec import identity
    from agentloop.run.collect import tasks_of
    from agentloop.run.evaluate import Evaluation, evaluate
    from agentloop.types import Cautions

    end_on = tuple(given.end_on.split(",")) if given.end_on else ()
    settings = Evaluation(identity(given.policy), given.tasks, given.attempts, given.seed, end_on=end_on)
    environments = open_environments(given.env, **environment_settings(given))
    async with opened_policies(environments, given.policy) as (policy,):
        with progress("evaluate") as advance:
            evaluated = await evaluate(
                given.out,
                settings,
                environments=environments,
                policy=policy,
                progress=lambda done, total, rows: advance(done, total),
            )
        tasks = tasks_of(environments, given.tasks, seed=given.seed)
        return evaluated, list(environments.cautions(tasks)) if isinstance(environments, Cautions) else []


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
    yield "scored: attempts with a reward. SE task: clustered by task. A run is one attempt at every task."
    yield "SE runs: over runs, sampling noise only."
    if "wilson" in intervals:
        yield "95 %: Wilson's interval, as all tasks had the same success."
    yield f"ended as: {ended}; mean length {summary['mean_length']:.2f} turns"
    yield from summary["cautions"]
