"""Options of the commands that collect, `collect` and `serve`: recipe, policies, spending, pilot."""

from __future__ import annotations

import argparse
from pathlib import Path
from textwrap import fill as wrapped
from typing import TYPE_CHECKING, Any

from agentloop.commands.arguments import end_on, env_set, read_n, read_recipe, read_text, turns
from occupancy.record.errors import InputError
from occupancy.record.recipe import MEANINGS
from occupancy.record.specs import Count, Few, Positive, Size, amount, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentloop.run.settings import Settings, SpendingLimits
    from agentloop.types import Environments
    from occupancy.record.recipe import Recipe

PRESETS = "presets:\n" + "\n".join(
    wrapped(meaning, 79, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
    for name, meaning in MEANINGS.items()
)

NEEDS = {
    **dict.fromkeys(("handback", "replicates", "demo_tasks"), "pilot"),
    "part": "plan",
    "like": "dry_run",
}
"""Options that change nothing without another one."""


def add_collecting(command: argparse.ArgumentParser) -> None:
    """What is collected and by whom, what it may spend, and what a pilot holds."""
    add = command.add_argument
    add(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a field of the recipe, e.g. K=3",
    )
    add("--student", help="policy of the rollouts, e.g. scripted:lapse=.1; pure-bc needs none")
    add("--teacher", help="policy of the continuations, e.g. expert or openai:MODEL@URL")
    add("--n-of-task", metavar="FILE", help="CSV with task_id and n: proposals of single tasks")
    add("--wall", type=option(Positive), metavar="SECONDS", help="limit of an episode")
    add("--switch-prompt", metavar="FILE", help="what the teacher is asked under law 'teacher'")
    add(
        "--switch-weights",
        default="",
        metavar="MODULE:FUNCTION",
        help="weights of a rollout's turns, law 'weights'",
    )
    add("--plan", metavar="PLAN.toml", help="take what is not given from a plan of `fewsteps plan --out`")
    add("--part", help="of the plan: demonstrations or continuations")
    spending = command.add_argument_group("spending", "what the run may spend; may be changed at a resume")
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
        help="inference or money: never exceeded; training: C_tr, to within one continuation (default: the "
        "plan's, else inference)",
    )
    add("--prices", metavar="FILE", help="price table in TOML")
    add("--turn-tokens", type=option(Count), metavar="N", help="most output tokens of a teacher's turn")
    add("--retries", type=option(Size), default=5, help="retries of a failed call (default: 5)")
    pilot = command.add_argument_group("pilot", "what `fewsteps plan` needs, in one run")
    add = pilot.add_argument
    add("--pilot", action="store_true", help="whole continuations, hand-backs and demonstrations")
    add("--handback", help="teacher turns before each hand-back (default: 0,1,2,3,5)")
    add("--replicates", type=option(Few), help="hand-backs at each depth (default: 2)")
    add("--demo-tasks", type=option(Size), help="demonstrations (default: 40)")


def fill(given: argparse.Namespace, needed: Sequence[str]) -> None:
    """Take from --plan what is not given; InputError where something that is needed is still missing, or
    where an option would change nothing."""
    for name, needs in NEEDS.items():
        if getattr(given, name, None) is not None and not getattr(given, needs):
            flag, other = (f"--{each.replace('_', '-')}" for each in (name, needs))
            raise InputError(f"{flag} without {other} changes nothing: give both, or leave {flag} out")
    if given.plan:
        from agentloop.run.plan_file import fill_collect

        fill_collect(given)
    if given.axis is not None and given.budget is None:
        raise InputError(f"--axis {given.axis} without --budget limits nothing: give both, or leave it out")
    if lacking := [name for name in needed if getattr(given, name) is None]:
        raise InputError(f"--{lacking[0]} is missing: give it, or a plan with --plan")


def recipe_changes(given: argparse.Namespace) -> dict[str, Any]:
    """The fields of a recipe that the command line sets."""
    from agentloop.policies.chat_spec import identity
    from occupancy.record.recipe import Recipe
    from occupancy.record.specs import settings as settings_of

    changes = settings_of(Recipe, given.set, of="--set")
    if "teacher" in changes:
        raise InputError(f"--set teacher={changes['teacher']}: name the teacher with --teacher alone")
    changes["teacher"] = identity(given.teacher)
    if given.pilot:
        changes.setdefault("K", "inf")
    return changes


def read_recipes(given: argparse.Namespace, environments: Environments) -> dict[str, Recipe]:
    """The recipes of the command line, by their names there; sets --student to '' where none has to act."""
    changes = recipe_changes(given)
    recipes = {
        name: read_recipe(name, changes, T_max=environments.T_max) for name in given.recipe or ["op-short"]
    }
    asks = any(recipe.switch.law == "teacher" for recipe in recipes.values())
    if given.switch_prompt and not asks:
        raise InputError(
            f"--switch-prompt {given.switch_prompt}: no teacher is asked for t' by {', '.join(recipes)}; "
            f"leave it out, or collect leap"
        )
    if asks and environments.policy(given.teacher):
        raise InputError(
            f"--teacher {given.teacher} only acts, and switch law 'teacher' asks the teacher when to take "
            f"over: name a language model, or use --set switch=uniform"
        )
    if len({Path(name).stem for name in given.recipe}) < len(given.recipe):
        raise InputError(
            f"--recipe {', '.join(given.recipe)}: two of one name would share a folder; rename one of them"
        )
    if given.student is None:
        if acts := [name for name, recipe in recipes.items() if recipe.rho != "teacher"]:
            raise InputError(
                f"--student is missing, whose rollouts {acts[0]} begins with: give it, or a plan with --plan"
            )
        given.student = ""
    return recipes


def read_settings(given: argparse.Namespace, recipe: Recipe) -> Settings:
    """What is collected with a recipe."""
    from agentloop.policies.chat_spec import address, identity
    from agentloop.run.settings import SWITCH_PROMPT, Settings

    names = ("handback", "replicates", "demo_tasks")
    pilot = {name: value for name in names if (value := getattr(given, name)) is not None}
    if "handback" in pilot:
        pilot["handback"] = turns("--handback", given.handback)
    return Settings(
        recipe=recipe,
        student=identity(given.student),
        teacher=identity(given.teacher),
        served_by={"student": address(given.student), "teacher": address(given.teacher)},
        tasks=given.tasks,
        env=given.env,
        env_set=env_set(given),
        seed=given.seed,
        n_of_task=read_n(given.n_of_task) if given.n_of_task else {},
        wall_s=given.wall,
        end_on=end_on(given),
        switch_prompt=read_text("--switch-prompt", given.switch_prompt)
        if given.switch_prompt
        else SWITCH_PROMPT,
        switch_weights=given.switch_weights,
        pilot=given.pilot,
        **pilot,
    )


def read_spending(given: argparse.Namespace) -> SpendingLimits:
    """What a run may spend."""
    from agentloop.run.settings import SpendingLimits
    from occupancy.record.prices import read_prices

    return SpendingLimits(
        budget=given.budget,
        axis=given.axis or "inference",
        prices=read_prices(given.prices) if given.prices else None,
        turn_tokens=given.turn_tokens,
        retries=given.retries,
    )
