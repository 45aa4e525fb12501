"""The command `fewsteps simulate`: compare recipes in a world whose outcome is computed exactly."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from occupancy.record.errors import InputError
from occupancy.record.show import add_json, progress, show, table
from occupancy.record.specs import Count, Few, Positive, Seed, Share, option

if TYPE_CHECKING:
    import pandas as pd

    from simulate.worlds.students import Student
    from simulate.worlds.types import World

_K = (1, 2, 3, 5, 8, math.inf)
_EXAMPLE = "fewsteps simulate --world short --budgets 32000,128000 --K 1,2,3,5,8,inf --out DIR"


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `simulate`; its handler is (arguments) -> exit code."""
    simulate = subparsers.add_parser(
        "simulate",
        help="compare recipes in a world whose outcome is computed exactly",
        description="Play the whole pipeline (demonstrations, student, rollouts, continuations, filters, "
        "retraining, exact evaluation) in a synthetic world, for every recipe at every K, r and budget.",
        epilog=f"example: {_EXAMPLE}",
    )
    add = simulate.add_argument
    add(
        "--world",
        metavar="NAME|FILE.toml",
        help="family (short, middle, long, any, weak, garnet, desk, maze, search), one of its worlds such as "
        "short/7, or a TOML file",
    )
    add("--budgets", type=_numbers(Count), default=[32_000, 128_000], metavar="N,N", help="teacher tokens")
    add(
        "--K",
        type=_numbers(str),
        metavar="N,N",
        help="for op-short (default: 1,2,3,5,8,inf, as far as the world's horizon allows)",
    )
    add(
        "--r",
        type=_numbers(Share),
        default=[0, 0.25, 0.5, 0.75, 1],
        metavar="X,X",
        help="fractions of the budget spent on-policy; the rest buys demonstrations",
    )
    add("--recipes", type=_numbers(str), default=["op-short"], metavar="NAME,NAME", help="presets to compare")
    add("--seeds", type=option(Few), default=32, help="pipelines a recipe (default 32)")
    add(
        "--axis",
        choices=("inference", "training", "both"),
        default="inference",
        help="what budgets count: tokens bought (C_i), tokens trained on (C_tr), or one sweep of each",
    )
    add("--rounds", type=option(Few), default=1, help="rounds of collecting and retraining (default 1)")
    add("--student", choices=("tabular", "log-linear"), help="default: the world's own")
    add("--kappa", type=option(Positive), help="tabular: turns that teach half a context")
    add("--steps", type=option(Few), help="log-linear: gradient steps of a training")
    add("--rate", type=option(Positive), help="log-linear: step size")
    add("--seed", type=option(Seed), default=0, help="of all draws (default 0)")
    add("--out", metavar="DIR", help="where outcomes.parquet and the figures go; new")
    add_json(simulate)
    simulate.set_defaults(handler=_simulate)


def _numbers(kind: Any) -> Any:
    """An argparse `type`: values with commas between, one at least."""
    read = option(tuple[kind, ...])

    def parse(text: str) -> list[Any]:
        values = [*read(text)]
        if not values:
            raise argparse.ArgumentTypeError(f"{text!r}: expected values with commas between")
        return values

    return parse


def _simulate(arguments: argparse.Namespace) -> int:
    from occupancy.record.drafts import new_folder, whole_folder
    from simulate.pipelines.summary import best
    from simulate.worlds.worldfile import load_world

    if not arguments.world or not arguments.out:
        raise InputError(f"--world and --out are needed; try: {_EXAMPLE}")
    folder = new_folder(arguments.out, or_empty=True)
    world = load_world(arguments.world)
    frame = _sweep(arguments, world, _student(arguments))
    report = _report(world, frame, best(frame))
    with whole_folder(folder) as draft:
        written = _write(frame, draft)
    report["files"] = [str(folder / file.relative_to(draft)) for file in written]
    show(arguments, report, lambda: _shown(report, frame))
    return 0


def _student(arguments: argparse.Namespace) -> Student | None:
    """The student that is asked for; None: the world's own."""
    from simulate.worlds.students import LogLinear, Tabular

    given = {k: v for k in ("kappa", "steps", "rate") if (v := getattr(arguments, k)) is not None}
    if arguments.student is None and not given:
        return None
    name = arguments.student or "tabular"
    mine = ("kappa",) if name == "tabular" else ("steps", "rate")
    foreign = sorted(set(given) - set(mine))
    if foreign:
        raise InputError(f"--{foreign[0]} is not for --student {name}: it takes {', '.join(mine)}")
    return (Tabular if name == "tabular" else LogLinear)(**given)


def _sweep(arguments: argparse.Namespace, world: World, student: Student | None) -> pd.DataFrame:
    import pandas as pd

    from occupancy import preset
    from occupancy.record.recipe import parse_K
    from simulate.pipelines.lanes import with_K
    from simulate.pipelines.sweeping import sweep

    named = [preset(name, T_max=world.horizon) for name in arguments.recipes]
    possible = [K for K in _K if world.horizon >= K or math.inf == K]
    recipes = with_K(named, [parse_K(K) for K in arguments.K or possible])
    axes = ("inference", "training") if arguments.axis == "both" else (arguments.axis,)
    frames = []
    for axis in axes:
        with progress(f"{world.name}, {axis}") as advance:
            swept = sweep(
                world,
                recipes=recipes,
                budgets=arguments.budgets,
                r=arguments.r,
                seeds=arguments.seeds,
                axis=axis,
                rounds=arguments.rounds,
                student=student,
                seed=arguments.seed,
                progress=advance,
            )
        frames.append(swept.frame())
    return pd.concat(frames, ignore_index=True)


def _report(world: World, frame: pd.DataFrame, winners: pd.DataFrame) -> dict[str, Any]:
    from simulate.solving.solve import answers

    exact = answers(world)
    spent = frame["C_i"].where(frame["matched_on"] == "inference", frame["C_tr"])
    winners = winners.astype(object).where(winners.notna(), None)
    return {
        "world": world.name,
        "states": world.S,
        "contexts": world.X,
        "T_max": world.horizon,
        "J_student": exact.J_student,
        "J_teacher": exact.J_teacher,
        "mean_length": exact.mean_length,
        "pipelines": len(frame),
        "student": frame["student"].iloc[0],
        "spent_over_budget": [float((spent / frame["budget"]).min()), float((spent / frame["budget"]).max())],
        "best": [dict(row) for _, row in winners.iterrows()],
    }


def _write(frame: pd.DataFrame, folder: Path) -> list[Path]:
    from simulate.pipelines.figures import save_figures

    frame.to_parquet(folder / "outcomes.parquet", index=False)
    written = [folder / "outcomes.parquet"]
    for axis, part in frame.groupby("matched_on"):
        place = folder / str(axis) if frame["matched_on"].nunique() > 1 else folder
        place.mkdir(exist_ok=True)
        written += save_figures(part, place)
    return written


def _shown(report: dict[str, Any], frame: pd.DataFrame) -> Iterator[Any]:
    from simulate.pipelines.summary import means

    for row in report["best"]:
        yield _best(row)
    low, high = report["spent_over_budget"]
    yield (
        f"{report['world']}: {report['states']} states, {report['contexts']} contexts; pass@1 of the base "
        f"student {report['J_student']:.3f}, of the teacher {report['J_teacher']:.3f}; {report['pipelines']} "
        f"pipelines spent {low:.1%} to {high:.1%} of their budget"
    )
    found = means(frame)
    top = found.loc[found.groupby(["matched_on", "budget", "recipe", "K"], sort=False)["J"].idxmax()]
    near = {
        (row["matched_on"], row["budget"], other["recipe"], other["K"])
        for row in report["best"]
        for other in row["not_worse"]
    }
    heads = ("budget", "recipe", "K", "best r", "pass@1", "C_i", "C_tr")
    for matched_on, part in top.groupby("matched_on", sort=False):
        rows = []
        for _, row in part.iterrows():
            mark = "*" if (matched_on, row["budget"], row["recipe"], row["K"]) in near else " "
            J = f"{row['J']:.4f} ±{row['se']:.4f}{mark}"
            costs = f"{row['C_i']:,.0f}", f"{row['C_tr']:,.0f}"
            rows.append((f"{row['budget']:,}", row["recipe"], row["K"], f"{row['r']:g}", J, *costs))
        yield table(f"same tokens: {matched_on}", heads, rows, left=("recipe",))
    yield "* not worse than the best of its budget by more than two paired standard errors"
    yield from report["files"]


def _best(row: dict[str, Any]) -> str:
    """The answer at one budget, as a sentence."""
    own = f"{row['recipe']} K={row['K']}"
    near = [n for n in dict.fromkeys(f"{o['recipe']} K={o['K']}" for o in row["not_worse"]) if n != own]
    more = f" and {len(near) - 4} more" if len(near) > 4 else ""
    said = f"; not worse: {', '.join(near[:4])}{more}" if near else ""
    return (
        f"Best at {row['budget']:,} tokens ({row['matched_on']}): {own} r={row['r']:g}, pass@1 "
        f"{row['J']:.3f}{said}."
    )
