"""`fewsteps collect`: Algorithm 1 on real tasks, into a run folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentloop.commands.arguments import add_playing
from agentloop.commands.evaluate import add_evaluate
from occupancy.record.recipe import MEANINGS
from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Count, Few, Positive, Size, amount, option

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentloop.run.matched import CollectOne
    from agentloop.run.settings import Settings, SpendingLimits
    from agentloop.types import Environments
    from occupancy.record.rows import Rows


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `collect` and `evaluate`."""
    add_evaluate(commands)
    collect = commands.add_parser(
        "collect",
        help="roll the student out, let the teacher continue, and write a run folder",
        description="Run Algorithm 1. The same command on the same folder goes on where it was stopped.",
        epilog="presets:\n" + "\n".join(f"  {name:<13}{meaning}" for name, meaning in MEANINGS.items()),
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
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a field of the recipe, e.g. K=3",
    )
    add("--student", help="policy of the rollouts, e.g. scripted:lapse=.1")
    add("--teacher", help="policy of the continuations, e.g. expert or openai:MODEL@URL")
    add("--n-of-task", metavar="FILE", help="CSV with task_id and n: proposals of single tasks")
    add("--wall", type=option(Positive), metavar="SECONDS", help="limit of an episode")
    add("--switch-prompt", metavar="FILE", help="what the teacher is asked under law 'teacher'")
    add(
        "--ray",
        type=option(Few),
        metavar="MACHINES",
        help="spread the tasks over so many Ray actors (RAY_ADDRESS names the cluster)",
    )
    add(
        "--switch-weights",
        default="",
        metavar="MODULE:FUNCTION",
        help="weights of a rollout's turns, law 'weights'",
    )
    add("--plan", metavar="PLAN.toml", help="take what is not given from a plan of `fewsteps plan --out`")
    add("--part", help="of the plan: demonstrations or continuations")
    _add_spending(collect)
    pilot = collect.add_argument_group("pilot", "what `fewsteps plan` needs, in one run")
    add = pilot.add_argument
    add("--pilot", action="store_true", help="whole continuations, hand-backs and demonstrations")
    add("--handback", default="0,1,2,3,5", help="teacher turns before each hand-back")
    add("--replicates", type=option(Few), default=2, help="hand-backs at each depth (default: 2)")
    add("--demo-tasks", type=option(Size), default=40, help="demonstrations (default: 40)")
    add_json(collect)
    collect.set_defaults(handler=_collect)


def _add_spending(collect: argparse.ArgumentParser) -> None:
    spending = collect.add_argument_group("spending", "what the run may spend; may be changed at a resume")
    add = spending.add_argument
    add(
        "--budget",
        type=option(amount),
        metavar="N",
        help="teacher tokens such as 300k or 1.2M, or money; with several --recipe, for each of them "
        "(default: no limit)",
    )
    add(
        "--axis",
        default="inference",
        help="inference or money: never exceeded; training: C_tr, to within one continuation",
    )
    add("--prices", metavar="FILE", help="price table in TOML")
    add("--turn-tokens", type=option(Count), metavar="N", help="most output tokens of a teacher's turn")
    add("--retries", type=option(Size), default=5, help="retries of a failed call (default: 5)")


def _collect(given: argparse.Namespace) -> int:
    import asyncio

    from agentloop.commands.arguments import environment_settings, read_n, read_recipe, read_text, turns
    from agentloop.policies.by_name import open_environments
    from agentloop.policies.chat_spec import address, identity
    from agentloop.run.settings import SWITCH_PROMPT, Settings, SpendingLimits
    from occupancy.record.errors import BudgetStopped, InputError
    from occupancy.record.prices import read_prices
    from occupancy.record.recipe import Recipe
    from occupancy.record.specs import settings as settings_of

    if given.plan:
        from agentloop.run.plan_file import fill_collect

        fill_collect(given)
    lacking = [name for name in ("env", "student", "teacher", "tasks") if getattr(given, name) is None]
    if lacking:
        raise InputError(f"--{lacking[0]} is missing: give it, or a plan with --plan")
    changes = settings_of(Recipe, given.set, of="--set")
    if "teacher" in changes:
        raise InputError(f"--set teacher={changes['teacher']}: name the teacher with --teacher alone")
    changes["teacher"] = identity(given.teacher)
    if given.pilot:
        changes.setdefault("K", "inf")
    environments = open_environments(given.env, **environment_settings(given))
    T_max = environments.T_max
    recipes = {name: read_recipe(name, changes, T_max=T_max) for name in given.recipe or ["op-short"]}
    if any(r.switch.law == "teacher" for r in recipes.values()) and environments.policy(given.teacher):
        raise InputError(
            f"--teacher {given.teacher} only acts, and switch law 'teacher' asks the teacher when to take "
            f"over: name a language model, or use --set switch=uniform"
        )
    if len({Path(name).stem for name in given.recipe}) < len(given.recipe):
        raise InputError(
            f"--recipe {', '.join(given.recipe)}: two of one name would share a folder; rename one of them"
        )
    settings = {
        Path(name).stem: Settings(
            recipe=recipe,
            student=identity(given.student),
            teacher=identity(given.teacher),
            served_by={"student": address(given.student), "teacher": address(given.teacher)},
            tasks=given.tasks,
            env=given.env,
            seed=given.seed,
            n_of_task=read_n(given.n_of_task) if given.n_of_task else {},
            wall_s=given.wall,
            end_on=tuple(given.end_on.split(",")) if given.end_on else (),
            switch_prompt=read_text("--switch-prompt", given.switch_prompt)
            if given.switch_prompt
            else SWITCH_PROMPT,
            switch_weights=given.switch_weights,
            pilot=given.pilot,
            handback=turns("--handback", given.handback),
            replicates=given.replicates,
            demo_tasks=given.demo_tasks,
        )
        for name, recipe in recipes.items()
    }
    spending = SpendingLimits(
        budget=given.budget,
        axis=given.axis,
        prices=read_prices(given.prices) if given.prices else None,
        turn_tokens=given.turn_tokens,
        retries=given.retries,
    )
    try:
        if given.ray is None:
            return asyncio.run(_here(given, environments, settings, spending))
        return asyncio.run(_on_ray(given, settings, spending))
    except BudgetStopped:
        _show(given, status="budget_stopped")
        raise


async def _here(
    given: argparse.Namespace,
    environments: Environments,
    settings: Mapping[str, Settings],
    spending: SpendingLimits,
) -> int:
    from agentloop.commands.arguments import opened_policies
    from agentloop.run.collect import collect
    from agentloop.run.types import Setup

    tokens = 0
    async with opened_policies(environments, given.student, given.teacher) as (student, teacher):
        with progress("collect") as advance:

            def committed(done: int, total: int, rows: Rows) -> None:
                nonlocal tokens
                tokens += sum(t["output_tokens"] for t in rows.get("turns", []) if t["author"] == "teacher")
                advance(done, total, f"{tokens:,} teacher tokens in new rows")

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
    from agentloop.run.matched import collect_matched

    if len(settings) > 1:
        proof = await collect_matched(given.out, settings, spending, one)
        show(given, proof.to_dict(), lambda: proof_shown(proof))
        return 0 if proof.matched else 1
    (only,) = settings.values()
    await one(Path(given.out), only, spending)
    _show(given, status="finished")
    return 0


def _show(given: argparse.Namespace, *, status: str) -> None:
    from agentloop.run.summary import summarise
    from occupancy.runs import open_run

    summary = summarise(open_run(given.out)) | {"status": status}
    show(given, summary, lambda: _shown(summary))


def _shown(summary: dict[str, Any]) -> Iterator[Any]:
    rows = []
    for kind, row in summary["episodes"].items():
        share = "-" if row["success"] is None else f"{row['success']:.3f}"
        ended = ", ".join(f"{status} {count}" for status, count in row["status"].items())
        rows.append((kind, row["episodes"], share, f"{row['success_of_all']:.3f}", ended))
    title = f"{summary['folder']}: {summary['recipe']} ({summary['recipe_hash']})"
    heads = ("episodes of", "number", "success", "of all", "ended as")
    yield table(title, heads, rows, left=("episodes of", "ended as"))
    outcomes = summary["proposals"]
    counts = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.items())
    yield f"{summary['status']}; proposals: {counts or 'none'}"
    if len(outcomes) > 1:
        means = (f"{o} {p['t_prime']:.1f} of {p['T']:.1f}" for o, p in summary["prefixes"].items())
        yield f"mean t' of mean T, before and after filters and errors: {', '.join(means)}"
    yield (
        f"C_i {summary['C_i']:,} teacher tokens bought in {summary['attempts']:,} attempts "
        f"({summary['failed_attempts']} failed, {summary['lost_attempts']} lost); "
        f"C_tr {summary['C_tr']:,} in {summary['traces']:,} accepted traces"
    )
    for warning in summary["warnings"]:
        yield f"warning: {warning}"
