"""`fewsteps evaluate`: policies on tasks, several times, with standard errors both ways."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.commands.arguments import add_playing
from occupancy.record.show import Unbroken, add_json, progress, show, table
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
        metavar="[NAME=]POLICY",
        help="what is evaluated, e.g. scripted; given several times, each is evaluated into OUT/NAME (by "
        "default what distinguishes it), and checkpoints of one model share one engine",
    )
    command.add_argument("--attempts", type=option(Few), default=8, help="attempts a task (default: 8)")
    add_playing(command, required=True)
    add_json(command)
    command.set_defaults(handler=_evaluate)


def _evaluate(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.commands.policy_names import names_of, split_name
    from agentloop.policies.chat_spec import identity
    from agentloop.run.evaluate import summarise_evaluation
    from agentloop.run.summary import cut_turns

    chosen, specs = zip(*map(split_name, given.policy), strict=True)
    names = names_of([identity(spec) for spec in specs], chosen)
    runs, cautions = asyncio.run(_run(given, specs, names))
    summaries = [{"name": name} | summarise_evaluation(run) for name, run in zip(names, runs, strict=True)]
    for summary in summaries:
        summary["cautions"] = [*cut_turns("attempts", summary["status"]), *cautions]
    report = summaries[0] if len(summaries) == 1 else {"evaluations": summaries}
    show(given, report, lambda: _shown(summaries, given.out))
    return 0


async def _run(
    given: argparse.Namespace, specs: Sequence[str], names: Sequence[str]
) -> tuple[list[Run], list[str]]:
    from agentloop.commands.arguments import end_on, environment_settings, opened_policies
    from agentloop.commands.policy_names import folders_of
    from agentloop.policies.by_name import open_environments
    from agentloop.policies.chat_spec import identity
    from agentloop.run.collect import tasks_of
    from agentloop.run.evaluate import Evaluation, evaluate
    from agentloop.types import Cautions

    settings = [
        Evaluation(identity(spec), given.tasks, given.attempts, given.seed, end_on=end_on(given))
        for spec in specs
    ]
    folders = folders_of(Path(given.out), names, settings)
    environments = open_environments(given.env, **environment_settings(given))

    async def evaluated(settings: Evaluation, policy: Policy, folder: Path) -> Run:
        with progress("evaluate") as advance:
            return await evaluate(
                folder,
                settings,
                environments=environments,
                policy=policy,
                progress=lambda done, total, rows: advance(done, total),
            )

    async with opened_policies(environments, *specs, one_engine=len(specs) > 1) as policies:
        runs = [await evaluated(*one) for one in zip(settings, policies, folders, strict=True)]
        tasks = tasks_of(environments, given.tasks, seed=given.seed)
        return runs, list(environments.cautions(tasks)) if isinstance(environments, Cautions) else []


def _shown(summaries: Sequence[dict[str, Any]], out: str) -> Iterator[Any]:
    """A table with a row a policy, and one of the scored attempts where some have no reward; then notes."""
    several = len(summaries) > 1
    heads = ("policy" if several else "of", "success", "95 %", "SE task", "SE runs")
    rows = [row for one in summaries for row in _rows(one, one["name"] if several else "all")]
    yield table(out, heads, rows, left=heads[:1])
    yield (
        "success: mean over tasks of the fraction of attempts that succeed; an attempt that ends in an error "
        "does not. SE task: clustered by task. SE runs: sampling noise only, over runs of one attempt at "
        "every task."
    )
    if any(_scored(summary) for summary in summaries):
        yield "scored: attempts with a reward, without those that ended in an error."
    if any(row["interval"] == "wilson" for summary in summaries for _, row in _estimates(summary)):
        yield "95 %: Wilson's interval where all tasks had the same success."
    for summary in summaries:
        yield f"{summary['name']}: {_ended(summary)}"
        if several and Path(summary["folder"]).name != summary["name"]:
            yield f"{summary['name']} was begun in {summary['folder']}, and is there."
    each = [summary["cautions"] for summary in summaries]
    shared = [line for line in each[0] if all(line in lines for lines in each)]
    for summary in summaries:
        yield from (f"{summary['name']}: {line}" for line in summary["cautions"] if line not in shared)
    yield from shared
    if several:
        folders = shlex.join(summary["folder"] for summary in summaries)
        yield Unbroken(f"Differences, paired by task: fewsteps compare {folders}")


def _rows(summary: dict[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    for label, row in _estimates(summary):
        errors = ("-" if row[e] is None else f"{row[e]:.4f}" for e in ("cluster_se", "evaluation_se"))
        between = "-" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
        yield label or name, f"{row['mean']:.4f}", between, *errors


def _estimates(summary: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Success of all attempts, and of the scored ones where these are others."""
    yield "", summary["success"]
    if _scored(summary):
        yield " scored", summary["success_of_scored"]


def _scored(summary: dict[str, Any]) -> bool:
    """Whether some attempts have a reward, and some have none."""
    scored = summary["success_of_scored"]
    return scored is not None and scored["n"] < summary["success"]["n"]


def _ended(summary: dict[str, Any]) -> str:
    every, scored = summary["success"], summary["success_of_scored"]
    counts = f"{every['n']:,} attempts at {every['clusters']:,} tasks"
    if _scored(summary):
        counts += f" ({scored['n']:,} at {scored['clusters']:,} scored)"
    ended = ", ".join(f"{status} {count:,}" for status, count in summary["status"].items())
    return f"{counts}: {ended}; mean length {summary['mean_length']:.2f} turns"
