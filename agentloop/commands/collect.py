"""`fewsteps collect`: Algorithm 1 on real tasks, into a run folder."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.commands.arguments import add_playing
from agentloop.commands.recipes import (
    PRESETS,
    add_collecting,
    fill,
    read_recipes,
    read_settings,
    read_spending,
)
from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Few, option
from occupancy.record.track import add_track

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentloop.ledger.matched import CollectOne
    from agentloop.run.settings import Settings, SpendingLimits
    from agentloop.types import Environments
    from occupancy.record.rows import Rows


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `collect`."""
    collect = commands.add_parser(
        "collect",
        help="roll the student out, let the teacher continue, and write a run folder",
        description="Run Algorithm 1. The same command on the same folder goes on where it\nwas stopped.",
        epilog=PRESETS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_playing(collect, required=False)
    add = collect.add_argument
    add(
        "--recipe",
        action="append",
        default=[],
        help="a preset, or a TOML file (default: op-short); given several times, each is collected into "
        "OUT/NAME and has the whole --budget for itself",
    )
    add(
        "--ray",
        type=option(Few),
        metavar="MACHINES",
        help="spread the tasks over so many Ray actors (RAY_ADDRESS names the cluster)",
    )
    add_collecting(collect)
    ahead = collect.add_argument_group("before anything is bought")
    ahead.add_argument("--dry-run", action="store_true", help="say what it would cost, lowest to highest")
    ahead.add_argument(
        "--like", metavar="RUN", help="a run whose costs are expected again (default: the plan's pilot)"
    )
    add_track(collect)
    add_json(collect)
    collect.set_defaults(handler=_collect)


def _collect(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.commands.arguments import environment_settings
    from agentloop.policies.by_name import open_environments
    from occupancy.record.errors import BudgetStopped, InputError

    fill(given, ("env", "teacher", "tasks"))
    environments = open_environments(given.env, **environment_settings(given))
    settings = {
        Path(name).stem: read_settings(given, recipe)
        for name, recipe in read_recipes(given, environments).items()
    }
    spending = read_spending(given)
    if given.dry_run:
        return _forecast(given, environments, settings, spending)
    try:
        if given.ray is not None and given.track:
            raise InputError("--track with --ray: machines do not report to a tracker; leave one of them out")
        if given.ray is None:
            return asyncio.run(_here(given, environments, settings, spending))
        return asyncio.run(_on_ray(given, settings, spending))
    except BudgetStopped:
        show_run(given, status="budget_stopped")
        raise


def _forecast(
    given: argparse.Namespace,
    environments: Environments,
    settings: Mapping[str, Settings],
    spending: SpendingLimits,
) -> int:
    from agentloop.ledger.forecast import forecast
    from agentloop.run.collect import tasks_of
    from agentloop.run.plan_file import read_plan
    from occupancy.runs import open_run

    source = given.like or (read_plan(given.plan).pilot if given.plan else None)
    like = None if source is None else open_run(source)
    found = {
        name: forecast(
            one,
            tasks_of(environments, one.tasks, seed=one.seed),
            spending,
            turn_tokens=_limit_of(given.teacher) or spending.turn_tokens,
            like=like,
        )
        for name, one in settings.items()
    }
    report = {name: asdict(one) for name, one in found.items()}
    show(given, {"forecast": report}, lambda: _forecast_shown(report))
    return 0


def _limit_of(teacher: str) -> int | None:
    """Most output tokens of a model's turn, from its name alone; None for other policies."""
    from agentloop.policies.chat_spec import parse_chat
    from agentloop.policies.token_policy import parse_tokens

    kind, _, rest = teacher.partition(":")
    if kind == "openai":
        return parse_chat(teacher).max_tokens
    return parse_tokens(rest).max_tokens if kind in ("vllm", "transformers") else None


def _forecast_shown(report: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    heads = ("recipe", "proposals", "demos", "lowest", "expected", "highest", "limit")
    names = ("proposals", "demonstrations", "lowest", "expected", "highest", "limit")
    rows = [
        (recipe, *("-" if one[name] is None else f"{one[name]:,.0f}" for name in names))
        for recipe, one in report.items()
    ]
    yield table("teacher output tokens (C_i), nothing bought", heads, rows, left=("recipe",))
    learnt = next(iter(report.values()))["learnt_from"]
    if learnt is None:
        yield (
            "Nothing is expected without a run to learn from: give --like RUN, such as a pilot; before a "
            "first pilot, `fewsteps plan --design` guesses."
        )
    else:
        yield f"Expected from {learnt}; lowest and highest: 90 % interval, errors clustered by task."
    yield "limit: --budget, or every turn at its limit (--turn-tokens, or max_tokens of the teacher)."


async def _here(
    given: argparse.Namespace,
    environments: Environments,
    settings: Mapping[str, Settings],
    spending: SpendingLimits,
) -> int:
    from agentloop.commands.arguments import opened_policies
    from agentloop.run.collect import collect
    from agentloop.run.types import Setup
    from occupancy.record.track import tracked

    tokens = 0
    async with opened_policies(environments, given.student, given.teacher) as (student, teacher):
        about = {name: one.to_info() for name, one in settings.items()}
        with progress("collect") as advance, tracked(given.track, name=given.out, config=about) as track:

            def committed(done: int, total: int, rows: Rows) -> None:
                nonlocal tokens
                tokens += sum(t["output_tokens"] for t in rows.get("turns", []) if t["author"] == "teacher")
                advance(done, total, f"{tokens:,} new teacher tokens")
                track({"done": done, "total": total, "teacher_tokens": tokens})

            async def one(place: Path, wanted: Settings, limits: SpendingLimits) -> None:
                setup = Setup(wanted, environments, student, teacher, limits)
                await collect(place, setup, progress=committed)

            return await _collected(given, settings, spending, one)


async def _on_ray(
    given: argparse.Namespace, settings: Mapping[str, Settings], spending: SpendingLimits
) -> int:
    from agentloop.commands.arguments import environment_settings
    from agentloop.run.on_ray import ComponentNames, Machines, collect_on_ray

    names = ComponentNames(given.env, given.student, given.teacher, environment_settings(given))

    async def one(place: Path, wanted: Settings, limits: SpendingLimits) -> None:
        await collect_on_ray(place, wanted, names, machines=Machines(given.ray), spending=limits)

    return await _collected(given, settings, spending, one)


async def _collected(
    given: argparse.Namespace, settings: Mapping[str, Settings], spending: SpendingLimits, one: CollectOne
) -> int:
    """Collect one recipe, or several that are to spend the same; what came of it is printed."""
    from agentloop.commands.ledger import proof_shown
    from agentloop.ledger.matched import collect_matched

    if len(settings) > 1:
        proof = await collect_matched(given.out, settings, spending, one)
        show(given, proof.to_dict(), lambda: proof_shown(proof))
        return 0 if proof.matched else 1
    (only,) = settings.values()
    await one(Path(given.out), only, spending)
    show_run(given, status="finished")
    return 0


def show_run(given: argparse.Namespace, *, status: str) -> None:
    """Print what a run holds."""
    from agentloop.run.summary import summarise
    from occupancy.runs import open_run

    summary = summarise(open_run(given.out)) | {"status": status}
    show(given, summary, lambda: _shown(summary))


def _shown(summary: dict[str, Any]) -> Iterator[Any]:
    rows = []
    for kind, row in summary["episodes"].items():
        share = "-" if row["success"] is None else f"{row['success']:.3f}"
        ended = ", ".join(f"{status} {count}" for status, count in row["status"].items())
        what = "demonstration" if kind == "demo" else kind
        rows.append((what, row["episodes"], share, f"{row['success_of_all']:.3f}", ended))
    title = f"{summary['folder']}: {summary['recipe']} ({summary['recipe_hash']})"
    heads = ("episodes of", "number", "success", "of all", "ended as")
    if rows:
        yield table(title, heads, rows, left=("episodes of", "ended as"))
        if any(success != of_all for _, _, success, of_all, _ in rows):
            yield "success: of episodes with a reward; a continuation capped at K has none"
    else:
        yield f"{title}: no episode was finished yet"
    outcomes = summary["proposals"]
    counts = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())
    yield f"{summary['status']}; proposals: {counts or 'none'}"
    if len(outcomes) > 1:
        drawn = {o: p for o, p in summary["prefixes"].items() if p["t_prime"] is not None}
        means = (f"{o} {p['t_prime']:.1f} of {p['T']:.1f}" for o, p in drawn.items())
        yield f"mean t' of mean T, before and after filters and errors: {', '.join(means)}"
    yield (
        f"C_i {summary['C_i']:,} teacher tokens, C_tr {summary['C_tr']:,} in {summary['traces']:,} accepted "
        f"traces; calls of all models: {summary['attempts']:,} attempts "
        f"({summary['failed_attempts']} failed, {summary['lost_attempts']} lost)"
    )
    for warning in summary["warnings"]:
        yield f"warning: {warning}"
