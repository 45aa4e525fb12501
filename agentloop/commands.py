"""`fewsteps collect`: Algorithm 1 on real tasks, into a run folder."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentloop.rows import Rows
    from occupancy.recipe import Recipe
    from occupancy.runs import Run


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `collect`."""
    collect = commands.add_parser(
        "collect",
        help="roll the student out, let the teacher continue, and write a run folder",
        description="Run Algorithm 1. The same command on the same folder goes on where it was stopped.",
    )
    collect.add_argument("--env", required=True, help="alfworld, or package.module:function")
    collect.add_argument("--recipe", default="op-short", help="a preset, or a TOML file (default: op-short)")
    collect.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a field of the recipe, e.g. K=3",
    )
    collect.add_argument("--student", required=True, help="policy of the rollouts, e.g. scripted:lapse=.1")
    collect.add_argument("--teacher", required=True, help="policy of the continuations, e.g. expert")
    collect.add_argument("--tasks", required=True, help="a split, split:N for N of it, or @file of task ids")
    collect.add_argument("--out", required=True, metavar="RUN", help="the run folder")
    collect.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn (default: 0)")
    collect.add_argument("--workers", type=int, default=2, help="tasks played at the same time (default: 2)")
    collect.add_argument(
        "--env-set", action="append", default=[], metavar="NAME=VALUE", help="environment setting"
    )
    pilot = collect.add_argument_group("pilot", "what `fewsteps plan` needs, in one run")
    pilot.add_argument(
        "--pilot", action="store_true", help="whole continuations, hand-backs and demonstrations"
    )
    pilot.add_argument("--handback", default="0,1,2,3,5", help="teacher turns before each hand-back")
    pilot.add_argument("--replicates", type=int, default=2, help="hand-backs for each of them (default: 2)")
    pilot.add_argument("--demo-tasks", type=int, default=40, help="tasks with a demonstration (default: 40)")
    collect.add_argument("--json", action="store_true", help="one JSON object on standard output")
    collect.set_defaults(handler=_collect)


def _collect(given: argparse.Namespace) -> int:
    import asyncio
    import json

    from agentloop.collect import Settings
    from agentloop.summary import summarise

    recipe = _recipe(given)
    settings = Settings(
        recipe=recipe,
        student=given.student,
        teacher=given.teacher,
        tasks=given.tasks,
        seed=given.seed,
        pilot=given.pilot,
        handback=_turns(given.handback),
        replicates=given.replicates,
        demo_tasks=given.demo_tasks,
    )
    run = asyncio.run(_run(given, settings))
    summary = summarise(run)
    if given.json:
        print(json.dumps(summary))  # noqa: T201 -- standard output is what --json is for
    else:
        _print(summary)
    return 0


async def _run(given: argparse.Namespace, settings: Any) -> Run:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from agentloop.collect import collect
    from agentloop.policies import open_environments, open_policy

    environments = open_environments(given.env, workers=given.workers, **_pairs("--env-set", given.env_set))
    columns = (
        TextColumn("collect"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    tokens = 0
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            line = bar.add_task("", total=None, note="opening the environment")

            def progress(done: int, total: int, rows: Rows) -> None:
                nonlocal tokens
                tokens += sum(t["output_tokens"] for t in rows.get("turns", []) if t["author"] == "teacher")
                bar.update(line, completed=done, total=total, note=f"{tokens:,} teacher tokens")

            return await collect(
                given.out,
                settings,
                environments=environments,
                student=open_policy(given.student, environments),
                teacher=open_policy(given.teacher, environments),
                progress=progress,
            )
    finally:
        await environments.close()


def _recipe(given: argparse.Namespace) -> Recipe:
    from dataclasses import replace
    from pathlib import Path

    from occupancy.recipe import PRESETS, Recipe, preset

    changes = _pairs("--set", given.set)
    changes["teacher"] = given.teacher
    if given.pilot:
        changes.setdefault("K", "inf")
    if given.recipe in PRESETS:
        return preset(given.recipe, **changes)
    file = Path(given.recipe)
    if not file.is_file():
        from occupancy.errors import RecipeError

        raise RecipeError(
            f"--recipe {given.recipe}: expected one of {', '.join(PRESETS)}, or a TOML file that exists"
        )
    return replace(Recipe.from_toml(file.read_text("utf-8")), **changes)


def _pairs(flag: str, given: list[str]) -> dict[str, Any]:
    """NAME=VALUE arguments; whole numbers and decimals become numbers."""
    from occupancy.errors import InputError

    pairs: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InputError(f"{flag} {pair!r}: expected NAME=VALUE")
        pairs[name] = _value(value)
    return pairs


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _turns(text: str) -> tuple[int, ...]:
    from occupancy.errors import InputError

    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise InputError(
            f"--handback {text!r}: expected whole numbers with commas, e.g. 0,1,2,3,5"
        ) from error


def _print(summary: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{summary['folder']}: {summary['recipe']} ({summary['recipe_hash']})")
    for name in ("episodes of", "number", "success", "of all", "ended as"):
        table.add_column(name, justify="left" if name in ("episodes of", "ended as") else "right")
    for kind, row in summary["episodes"].items():
        share = "-" if row["success"] is None else f"{row['success']:.3f}"
        ended = ", ".join(f"{status} {count}" for status, count in row["status"].items())
        table.add_row(kind, str(row["episodes"]), share, f"{row['success_of_all']:.3f}", ended)
    outcomes = ", ".join(f"{outcome} {count}" for outcome, count in summary["proposals"].items())
    console = Console()
    console.print(table)
    console.print(f"proposals: {outcomes or 'none'}")
    console.print(
        f"C_i {summary['C_i']:,} teacher tokens bought in {summary['attempts']:,} attempts "
        f"({summary['failed_attempts']} failed, {summary['lost_attempts']} lost); "
        f"C_tr {summary['C_tr']:,} in {summary['traces']:,} accepted traces"
    )
