"""`fewsteps cut`: from a run of whole continuations, the run that a recipe at a budget would have been."""

from __future__ import annotations

import argparse

from occupancy.record.show import add_json, show
from occupancy.record.specs import Seed, Share, amount, option


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `cut`."""
    cut = commands.add_parser(
        "cut",
        help="what a run of whole continuations would have been under another recipe, K or budget",
        description="Write the run that a recipe at a budget would have been: whole continuations cut to K "
        "and filtered, demonstrations for the rest, tasks in a seeded order. Nothing is bought.",
    )
    add = cut.add_argument
    add("run", metavar="RUN", help="a pilot, or a run collected with K=inf and no success filter")
    add("--recipe", required=True, help="a preset, or a TOML file")
    add("--K", metavar="K", help="most teacher turns of a continuation (default: the recipe's)")
    add("--context", metavar="FILTER", help="all or mixed: contexts that are bought (default: the recipe's)")
    add(
        "--r",
        type=option(Share),
        metavar="X",
        help="fraction of the budget for the recipe (default: 1; pure-bc: 0)",
    )
    add(
        "--budget",
        type=option(amount),
        metavar="N",
        help="teacher tokens, e.g. 300k, never exceeded (default: the run's)",
    )
    add("--seed", type=option(Seed), default=0, help="of the order of tasks (default: 0)")
    add("--out", required=True, metavar="CELL", help="a new run folder")
    add_json(cut)
    cut.set_defaults(handler=_cut)


def _cut(given: argparse.Namespace) -> int:
    from agentloop.commands.arguments import read_recipe
    from agentloop.cuts.cut import Cell, cut
    from occupancy.record.drafts import new_folder, whole_folder
    from occupancy.record.errors import InputError
    from occupancy.runs import open_run

    run = open_run(given.run)
    same = {name: getattr(run.recipe, name) for name in ("teacher", "success_at", "n", "repetition")}
    asked = {"K": given.K, "context": given.context}
    changes = same | {name: value for name, value in asked.items() if value is not None}
    recipe = read_recipe(given.recipe, changes, T_max=run.recipe.T_max)
    r = given.r if given.r is not None else float(recipe.rho != "teacher")
    out = new_folder(given.out, or_empty=True)
    with whole_folder(out) as draft:
        made = cut(run, Cell(recipe, r=r, budget=given.budget, seed=given.seed), draft)
        spent = made.info["cut"]["demo_tokens"] + made.info["cut"]["continuation_tokens"]
        if given.budget is not None and not spent:
            raise InputError(
                f"--budget {given.budget:g} does not hold the first episode that {recipe.name} would buy: "
                f"give more"
            )
        counts = {name: made.read(name).num_rows for name in ("episodes", "proposals", "traces")}
    report = {"folder": str(out), "recipe": recipe.name, "recipe_hash": recipe.hash}
    report |= dict(made.info["cut"]) | counts
    show(
        given,
        report,
        f"{out}: {report['traces']:,} traces; {spent:,} teacher tokens, {report['demo_tokens']:,} of "
        f"demonstrations and {report['continuation_tokens']:,} of continuations, rejected ones included",
    )
    return 0
