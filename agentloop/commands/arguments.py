"""What commands of this package read from their arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.record.errors import InputError
from occupancy.record.specs import Few, Seed, option

if TYPE_CHECKING:
    import argparse

    from agentloop.types import Environments, Policy
    from occupancy.record.recipe import Recipe


def add_playing(command: argparse.ArgumentParser, *, required: bool) -> None:
    """Options of commands that play tasks into a run folder; `required`: whether --env and --tasks are."""
    add = command.add_argument
    add(
        "--env",
        required=required,
        help="alfworld, hotpotqa, terminal, openenv:URL, gym:FUNCTION or a package.module:function",
    )
    add("--tasks", required=required, help="a split, split:N for N of it, or @file of task ids")
    add("--out", required=True, metavar="RUN", help="the run folder")
    add("--seed", type=option(Seed), default=0, help="seed of every random draw (default: 0)")
    add("--workers", type=option(Few), help="tasks played at the same time (default: 2)")
    add("--env-set", action="append", default=[], metavar="NAME=VALUE", help="environment setting")
    add(
        "--end-on",
        default="",
        metavar="STATUS,...",
        help="parse statuses that end an episode, or 'any' (default: none)",
    )


def env_set(given: argparse.Namespace) -> dict[str, str]:
    """--env-set NAME=VALUE as texts by name."""
    found: dict[str, str] = {}
    for item in given.env_set:
        name, equals, value = item.partition("=")
        if not name or not equals or name in found:
            raise InputError(f"--env-set {item!r}: expected NAME=VALUE, each name once")
        found[name] = value
    return found


def environment_settings(given: argparse.Namespace) -> dict[str, Any]:
    """--env-set NAME=VALUE as texts, and --workers where the environment has such a setting."""
    from agentloop.policies.by_name import takes

    found: dict[str, Any] = dict(env_set(given))
    if given.workers is not None or takes(given.env, "workers"):
        found.setdefault("workers", given.workers or 2)
    return found


@asynccontextmanager
async def opened_policies(
    environments: Environments, *specs: str, one_engine: bool = False
) -> AsyncIterator[list[Policy]]:
    """The policies that `specs` name; they and the environment are closed at the end.

    one_engine  all models in this process play one after another, in an engine that stays up
    """
    from agentloop.policies.by_name import open_policy
    from agentloop.policies.one_engine import OneEngine
    from agentloop.types import Closes

    engine = OneEngine() if one_engine else None
    policies: list[Policy] = []
    try:
        for spec in specs:
            policies.append(open_policy(spec, environments, engine=engine))
        yield policies
    finally:
        for opened in (environments, *policies, engine):
            if isinstance(opened, Closes):
                await opened.close()


def end_on(given: argparse.Namespace) -> tuple[str, ...]:
    """--end-on STATUS,... as texts."""
    return tuple(given.end_on.split(",")) if given.end_on else ()


def turns(flag: str, text: str) -> tuple[int, ...]:
    """Turns, 0 or more each, with commas, in order."""
    from occupancy.record.specs import Size, value_of

    try:
        return tuple(sorted({value_of(part.strip(), Size) for part in text.split(",")}))
    except InputError as error:
        raise InputError(f"{flag} {text!r}: expected whole numbers with commas, e.g. 0,1,2,3,5") from error


def read_recipe(name: str, changes: dict[str, Any], *, T_max: int) -> Recipe:
    """A preset, with the environment's T_max unless that is changed too, or a TOML file; with changes."""
    from occupancy.record.errors import RecipeError
    from occupancy.record.recipe import PRESETS, Recipe, preset

    if name in PRESETS:
        return preset(name, **{"T_max": T_max, **changes})
    file = Path(name)
    if not file.is_file():
        raise RecipeError(
            f"--recipe {name}: expected one of {', '.join(PRESETS)}, or a TOML file that exists"
        )
    return Recipe.from_dict(Recipe.from_toml(read_text("--recipe", name)).to_dict() | changes)


def read_n(file: str) -> dict[str, int]:
    """Proposals of single tasks from a CSV file with the columns task_id and n."""
    import csv

    try:
        # Spreadsheets write a byte order mark.
        with Path(file).open(encoding="utf-8-sig", newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"--n-of-task {file} cannot be read: {error}") from error
    if not rows:
        raise InputError(f"--n-of-task {file} holds no row: expected the columns task_id and n")
    try:
        n = {row["task_id"]: int(row["n"]) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"--n-of-task {file}: expected the columns task_id and n ({error})") from error
    if len(n) < len(rows):
        raise InputError(f"--n-of-task {file} names a task twice: expected one row a task")
    return n


def read_text(flag: str, file: str) -> str:
    """A text file's content."""
    from occupancy.record.reading import reading

    with reading(f"{flag} {file}", then="name a text file", error=InputError):
        return Path(file).read_text("utf-8-sig")
