"""The command `fewsteps simulate validate`: the planner against the truth in drawn worlds."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Few, Seed, option

_EXAMPLE = "fewsteps simulate validate --worlds short,middle,long,any --seeds 40 --out DIR"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `validate` below `simulate`, which is defined before."""
    simulate = commands.choices["simulate"]
    actions = simulate.add_subparsers(title="instead of comparing recipes", metavar="validate")
    validate = actions.add_parser(
        "validate",
        help="compare the planner with fixed rules in worlds whose outcome is known",
        description="Draw worlds, play a pilot in each, plan from it at budgets of 5 and 20 times the "
        "pilot's cost, and compare with the true outcome of every candidate and of every fixed rule.",
        epilog=f"example: {_EXAMPLE}",
    )
    add = validate.add_argument
    add(
        "--worlds",
        default="",
        metavar="FILE.toml|NAMES",
        help="a family's file, or families by name (default short,middle,long,any; "
        "desk,maze,search are harder)",
    )
    add("--seeds", type=option(Few), default=40, help="number of worlds (default 40)")
    add("--seed", type=option(Seed), default=0, help="which worlds are drawn (default 0)")
    add("--trained", action="store_true", help="let the planner train students on cuts of its pilot")
    add("--rounds", action="store_true", help="buy the budget in rounds too, as `fewsteps spend` does")
    add(
        "--contexts",
        choices=("ids", "text"),
        default="ids",
        help="what pilots record of contexts: ids that recur (default), or whole histories, which never do",
    )
    add("--workers", type=option(Few), help="processes (default: one a core)")
    add("--out", metavar="DIR", required=True, help="where tables and figures go; new")
    add_json(validate)
    validate.set_defaults(handler=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    # Read when numpy is loaded, here and in the workers: small matrices, so threads would only wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from analysis.validate.figures import save_figures
    from analysis.validate.judge import Effort, judge_worlds, worlds_to_judge
    from analysis.validate.product import in_rounds, planned
    from analysis.validate.summary import frames, summary
    from occupancy.record.drafts import new_folder, whole_folder

    folder = new_folder(arguments.out, or_empty=True)
    effort = Effort(trained=arguments.trained, text=arguments.contexts == "text")
    worlds = worlds_to_judge(arguments.worlds, arguments.seeds, seed=arguments.seed)
    with progress("worlds") as advance:
        judged = judge_worlds(
            worlds,
            planner=planned,
            effort=effort,
            buyer=in_rounds if arguments.rounds else None,
            workers=arguments.workers or os.cpu_count() or 1,
            progress=advance,
        )
    options, plans = frames(*judged)
    found = summary(options, plans)
    with whole_folder(folder) as draft:
        options.to_parquet(draft / "options.parquet", index=False)
        plans.to_parquet(draft / "plans.parquet", index=False)
        names = ["options.parquet", "plans.parquet", *(f.name for f in save_figures(found, options, draft))]
    found["files"] = [str(folder / name) for name in names]
    show(arguments, found, lambda: _shown(found))
    return 0


def _shown(found: dict[str, Any]) -> Iterator[Any]:
    """By budget: regrets in points of pass@1, then what the plans said about themselves."""
    quality = {
        "bands_hold": "90 % bands hold",
        "rank": "rank correlation",
        "error": "predicted - true, points",
    }
    for multiple, part in found["budgets"].items():
        families = list(next(iter(part["regret"].values())))
        rows = [
            (rule, *(_cell(cells[f], scale=100) for f in families)) for rule, cells in part["regret"].items()
        ]
        for name, label in quality.items():
            scale = 100 if name == "error" else 1
            cells = (part[name].get(family, {"mean": None}) for family in families)
            rows.append((label, *(_cell(cell, scale=scale) for cell in cells)))
        title = f"Regret in points of pass@1, ± SE; budget: {multiple} pilots; the planner pays its pilot"
        yield table(title, ("rule", *families), rows, left=("rule", *families))
        statuses = ", ".join(f"{n} {status}" for status, n in part["statuses"].items())
        yield f"{statuses}; with shuffled rewards no preference in {part['shuffled_no_preference']:.0%}"
    yield from found["files"]


def _cell(cell: dict[str, Any], *, scale: int) -> str:
    if cell["mean"] is None:
        return "-"
    error = "" if cell["se"] is None else f" ±{cell['se'] * scale:.2f}"
    return f"{cell['mean'] * scale:.2f}{error}"
