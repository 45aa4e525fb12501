"""`fewsteps spend`. Heavy imports wait until the command runs."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.plan.commands import add_trainings, bench_of, effort_of
from occupancy.record.errors import DataError, InputError
from occupancy.record.show import add_json, say, show, table
from occupancy.record.specs import Few, Seed, amount, option

if TYPE_CHECKING:
    from agentloop.run.plan_file import PlanFile
    from analysis.plan.pilot import Pilot
    from analysis.plan.trainer import Trainer
    from analysis.spend.rounds import Buyer


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `spend`; it sets `handler`, (arguments) -> exit code."""
    spend = subparsers.add_parser(
        "spend",
        help="buy in rounds: first what any recipe can use, then trainings, then the best",
        description="Carry a plan out in rounds. Each round's decision, evidence and price is in "
        "OUT/spend.json before the next begins. The same command goes on where it was stopped.",
    )
    add = spend.add_argument
    add("plan", metavar="PLAN.toml", help="what `fewsteps plan --out` wrote")
    add(
        "--budget",
        type=option(amount),
        metavar="N",
        help="teacher tokens, the pilot's included (default: the plan's)",
    )
    add("--out", required=True, metavar="DIR", help="folder of all purchases and trainings")
    add(
        "--buyer",
        metavar="MODULE:FUNCTION",
        help="a function (recipe, budget, seed, folder, demonstrations) of your own; default: as `fewsteps "
        "collect` does",
    )
    add("--teacher", metavar="POLICY", help="the plan's teacher under another address or key")
    add("--student", metavar="POLICY", help="the plan's student under another address or key")
    add(
        "--workers",
        type=option(Few),
        default=2,
        metavar="N",
        help="tasks played at the same time (default: 2)",
    )
    add("--seed", type=option(Seed), default=0, help="of purchases and trainings (default 0)")
    add_trainings(spend)
    add_json(spend)
    spend.set_defaults(handler=_spend)


def _spend(arguments: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from agentloop.run.plan_file import read_plan
    from analysis.curves.arms import Arm
    from analysis.plan.already import paid_for
    from analysis.plan.product import Product
    from analysis.plan.read import read_pilot
    from analysis.spend.rounds import Rounds, spend
    from analysis.spend.state import HEADS, rows_of
    from occupancy.runs import open_run

    plan = _at(read_plan(arguments.plan), arguments)
    if plan.axis != "inference":
        raise InputError(
            f"{arguments.plan} is on the {plan.axis} axis, and rounds are bought on the inference axis: plan "
            f"with --axis inference, or buy all at once with `fewsteps collect --plan "
            f"{shlex.quote(arguments.plan)}`"
        )
    arguments.run, pilot = plan.pilot, read_pilot(plan.pilot)
    _refuse_other(arguments.plan, plan, pilot)
    bench = bench_of(arguments, beside=bool(plan.beside))
    if bench is None:
        raise InputError("rounds need trainings: give --trainer module:function, or --train FILE.toml")
    product = bench.trainer if isinstance(bench.trainer, Product) else None
    try:
        contenders = [Arm.from_dict(arm) for arm in plan.contenders]
    except (DataError, InputError) as error:
        raise InputError(f"{arguments.plan}: {error}") from error
    rounds = Rounds(
        open_run(plan.pilot),
        Path(arguments.out),
        plan.budget if arguments.budget is None else arguments.budget,
        _buyer(arguments, plan, pilot, bench.trainer),
        bench.trainer,
        bench.name,
        effort=effort_of(arguments),
        final=None if product is None else replace(product, keep_students=True),
        charged=plan.pilot_charged,
        beside=tuple(paid_for(plan.pilot, plan.beside)),
        pool=plan.pool if plan.pool_stated else None,
        planned=contenders[0] if contenders else None,
        mixed=any(arm.context == "mixed" for arm in contenders),
        seed=arguments.seed,
        progress=say,
    )
    state = spend(rounds)
    plain = state | {"file": str(Path(arguments.out) / "spend.json")}
    title = f"{state['spent']:,.0f} of {rounds.left:,.0f} teacher tokens spent; {plain['file']}"
    show(arguments, plain, lambda: [table(title, HEADS, rows_of(state), left=("step", "what came of it"))])
    return 0


def _at(plan: PlanFile, arguments: argparse.Namespace) -> PlanFile:
    """The plan with its policies under the addresses that were given."""
    from agentloop.policies.chat_spec import identity

    for role in ("teacher", "student"):
        given, own = getattr(arguments, role), getattr(plan, role)
        if given is not None and identity(given) != identity(own):
            raise InputError(
                f"--{role} {given}: the plan is for {own}, and another {role} needs another pilot; give the "
                f"same one, under another address"
            )
        plan = plan if given is None else replace(plan, **{role: given})
    return plan


def _refuse_other(file: str, plan: PlanFile, pilot: Pilot) -> None:
    """InputError where the pilot in the plan's folder is not the one that the plan was made from."""
    from agentloop.policies.chat_spec import identity
    from agentloop.run.collect import environment_of
    from occupancy.runs import open_run

    environment, env_set = environment_of(open_run(plan.pilot).info)
    for name, planned, own in (
        ("environment", plan.environment, environment),
        ("env_set", plan.env_set, env_set),
        ("student", identity(plan.student), identity(pilot.student)),
        ("teacher", identity(plan.teacher), identity(pilot.teacher)),
        ("T_max", plan.T_max, pilot.recipe.T_max),
        ("success_at", plan.success_at, pilot.recipe.success_at),
    ):
        if planned != own:
            raise InputError(
                f"{file} has {name}={planned!r}, and its pilot {plan.pilot} {own!r}: plan from this pilot "
                f"again with `fewsteps plan {shlex.quote(plan.pilot)} --budget {plan.budget:.10g} "
                f"--out {shlex.quote(file)}`"
            )


def _buyer(arguments: argparse.Namespace, plan: PlanFile, pilot: Pilot, trainer: Trainer) -> Buyer:
    """A buyer of the user's own, or the product's."""
    from analysis.plan.product import Product
    from analysis.plan.trainer import named_trainer
    from analysis.spend.buyer import ProductBuyer

    if arguments.buyer is not None:
        return named_trainer(arguments.buyer, of="--buyer")
    if not isinstance(trainer, Product):
        raise InputError(
            "--trainer alone: the rollouts that are bought last come from a student trained on "
            "demonstrations, which fewsteps makes with --train FILE.toml only; give that, or a --buyer"
        )
    return ProductBuyer(plan, pilot, trainer, arguments.workers)
