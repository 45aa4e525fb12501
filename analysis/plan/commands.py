"""The commands of this package: `fewsteps plan`. Heavy imports wait until a command runs."""

from __future__ import annotations

import argparse
import math
import os
from typing import TYPE_CHECKING, Any

from occupancy.record.errors import InputError
from occupancy.record.show import Unbroken, add_json, say, show
from occupancy.record.specs import Count, Few, NotNegative, Positive, Seed, amount, option

if TYPE_CHECKING:
    from analysis.plan.costs import Prices
    from analysis.plan.trainer import Bench, Effort


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define this package's commands; each sets `handler`, (arguments) -> exit code."""
    plan = subparsers.add_parser(
        "plan",
        help="which K to buy for a budget, from a pilot",
        description="Say which recipe a budget should buy, from a pilot that `fewsteps collect --pilot` "
        "recorded, and which others cannot be excluded.",
    )
    add = plan.add_argument
    add(
        "run", nargs="?", metavar="RUN", help="the pilot's run folder; with --design any earlier run, or none"
    )
    add(
        "--budget",
        type=option(amount),
        required=True,
        metavar="N",
        help="teacher tokens to buy such as 300k or 1.2M, the pilot's included; money on the money axis",
    )
    add(
        "--axis",
        choices=("inference", "training", "money"),
        default="inference",
        help="what the budget counts: all teacher output tokens, those of accepted traces, or money",
    )
    add(
        "--already",
        action="extend",
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs that are paid for, as D_BC: not charged, and trained on by every student; the pilot "
        "may be one",
    )
    add("--prices", metavar="FILE.toml", help="price table in TOML, the same as for `collect`")
    add(
        "--pool",
        type=option(Count),
        metavar="N",
        help="tasks that the budget can be spread over (default: the pilot's or, if these would be repeated "
        "often, its split's)",
    )
    add(
        "--mixed",
        action="store_true",
        help="compare arms that buy only contexts with mixed outcomes, too; the student plays more for them",
    )
    add("--seed", type=option(Seed), default=0, help="of the draws (default 0)")
    add(
        "--what-if",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how the plan moves with prices=FILE.toml, T_max=N or evaluation=TASKSxATTEMPTS; repeatable",
    )
    add_trainings(plan)
    _add_design(plan)
    add("--all", action="store_true", help="show every candidate")
    add("--page", metavar="FILE", help="write the plan as one HTML page, with its figure")
    add("--out", metavar="PLAN.toml", help="write what `spend`, `collect` and `train` take")
    add(
        "--least-gain",
        type=option(Positive),
        default=0.001,
        metavar="X",
        help="pass@1 that 1,000 further teacher tokens must bring (default .001)",
    )
    add_json(plan)
    plan.set_defaults(handler=_plan)


def add_trainings(plan: argparse.ArgumentParser) -> None:
    """Options that say how small trainings are made, and how many."""
    trainings = plan.add_argument_group(
        "small trainings", "on cuts of the pilot; each is kept in RUN and never repeated"
    )
    which = trainings.add_mutually_exclusive_group()
    which.add_argument(
        "--trainer",
        metavar="MODULE:FUNCTION",
        help="a function (run folders, seed) -> folder of an evaluation, or {task_id: [rewards]}",
    )
    which.add_argument(
        "--train", metavar="FILE.toml", help="train and evaluate with fewsteps itself; see docs/planner.md"
    )
    trainings.add_argument(
        "--trainings",
        type=option(Few),
        default=16,
        metavar="N",
        help="most trainings, kept ones included (default 16)",
    )
    trainings.add_argument(
        "--gpu-minutes", type=option(Positive), metavar="M", help="most minutes of new trainings"
    )


GUESSES = {
    "turn_tokens": "teacher output tokens a turn",
    "turns": "turns of a demonstration",
    "continuation_turns": "teacher turns of a continuation",
    "student_pass": "the student's pass@1",
    "teacher_pass": "the teacher's pass@1",
    "icc": "intraclass correlation of the student's outcome by task: the fraction of its variance that is "
    "between tasks",
    "prompt_tokens": "prompt tokens of a teacher turn, on the money axis",
    "T_max": "most turns of an episode",
}


def _add_design(plan: argparse.ArgumentParser) -> None:
    design = plan.add_argument_group(
        "pilot design", "how large a pilot to buy, before anything is bought; guesses are printed"
    )
    design.add_argument("--design", action="store_true", help="design a pilot instead of reading one")
    design.add_argument(
        "--replicates", type=option(Few), metavar="N", help="hand-backs for each of their depths"
    )
    for name, meaning in GUESSES.items():
        design.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            type=option(Count if name == "T_max" else NotNegative),
            metavar="N" if name == "T_max" else "X",
            help=meaning,
        )


NO_PLAN = ("page", "out", "mixed", "what_if", "already", "all", "trainer", "train", "gpu_minutes")
"""Options of a plan, which a design has no use for."""


def _design(arguments: argparse.Namespace) -> int:
    unused = [name for name in NO_PLAN if getattr(arguments, name)]
    if unused:
        raise InputError(
            f"--{unused[0].replace('_', '-')} with --design: a design makes no plan; leave it out, or plan "
            f"from a pilot (`fewsteps report RUN --budget N --out FILE` writes a page of a design)"
        )
    from analysis.plan.design import design
    from analysis.plan.design_answer import table
    from analysis.plan.guesses import Guesses, from_run

    given = {name: getattr(arguments, name) for name in GUESSES if getattr(arguments, name) is not None}
    guesses = Guesses(**given, sources=dict.fromkeys(given, "given"))
    names: dict[str, Any] = {}
    if arguments.run is not None:
        guesses, names = from_run(arguments.run, guesses)
    found = design(
        budget=arguments.budget,
        axis=arguments.axis,
        prices=_prices(arguments),
        pool=arguments.pool,
        replicates=arguments.replicates,
        guesses=guesses,
        run=names,
    )
    show(arguments, found.to_dict(), lambda: [table(found), *filter(None, [Unbroken(found.command)])])
    return 0


def _prices(arguments: argparse.Namespace) -> Prices | None:
    """The teacher's prices, where a table is given."""
    from analysis.plan.costs import Prices
    from occupancy.runs import open_run

    if arguments.prices is None:
        return None
    teacher = "" if arguments.run is None else open_run(arguments.run).recipe.teacher
    return Prices.from_toml(arguments.prices, teacher=teacher)


def _plan(arguments: argparse.Namespace) -> int:
    if arguments.design:
        return _design(arguments)
    if given := [name for name in (*GUESSES, "replicates") if getattr(arguments, name) is not None]:
        flag = given[0].replace("_", "-")
        raise InputError(f"--{flag} without --design: a plan reads it from the pilot; leave it out")
    if arguments.run is None:
        raise InputError("no RUN was given: name the pilot's run folder, or design one with --design")
    # Read when numpy is loaded, below. A plan's matrices are small: threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from analysis.plan.answer import table
    from analysis.plan.command_lines import capitals
    from analysis.plan.planner import plan
    from analysis.plan.purchase import commands, new_plan, plan_file, write_plan
    from occupancy.record.pages import new_page

    # Before trainings that may take hours.
    if arguments.page is not None and arguments.page == arguments.out:
        raise InputError(f"--page and --out are both {arguments.out!r}: expected a file for each")
    if arguments.page is not None:
        new_page(arguments.page, option="--page")
    if arguments.out is not None:
        new_plan(arguments.out)
    beside = [run for run in arguments.already if os.path.realpath(run) != os.path.realpath(arguments.run)]
    found = plan(
        arguments.run,
        budget=arguments.budget,
        axis=arguments.axis,
        already=arguments.already,
        prices=_prices(arguments),
        seed=arguments.seed,
        what_if=arguments.what_if,
        mixed=arguments.mixed,
        bench=bench_of(arguments, beside=bool(beside)),
        effort=effort_of(arguments),
        least_gain=arguments.least_gain,
        pool=arguments.pool,
        progress=say,
    )
    if arguments.page is not None:
        from analysis.page import plan_page

        plan_page(found, arguments.page)
    lines: list[str] = []
    if arguments.out is not None:
        write_plan(found, arguments.run, arguments.out)
        made = commands(arguments.out, plan_file(found, arguments.run))
        lines = [*map(Unbroken, made), *capitals(*made)]
    show(arguments, found.to_dict(), lambda: [table(found, every=arguments.all), *lines])
    return 0


def effort_of(arguments: argparse.Namespace) -> Effort:
    """How much may be trained."""
    from analysis.plan.trainer import Effort

    return Effort(arguments.trainings, arguments.gpu_minutes or math.inf)


def bench_of(arguments: argparse.Namespace, *, beside: bool) -> Bench | None:
    """Where trainings are made; None without a trainer. beside: on further runs too."""
    if arguments.trainer is None and arguments.train is None:
        return None
    from analysis.plan.trainer import Bench, named_trainer
    from occupancy.runs import open_run

    run = open_run(arguments.run)
    if arguments.train is not None:
        from analysis.plan.product import read_product

        product = read_product(arguments.train, run, beside=beside)
        return Bench(run, product, product.name)
    return Bench(run, named_trainer(arguments.trainer), arguments.trainer)
