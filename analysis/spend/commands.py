"""`fewsteps spend`. Heavy imports wait until the command runs."""

from __future__ import annotations

import argparse
import os
import sys

from analysis.plan.commands import add_trainings, bench_of, show
from occupancy.record.show import printable, say
from occupancy.record.specs import Seed, amount, option


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `spend`; it sets `handler`, (arguments) -> exit code."""
    spend = subparsers.add_parser(
        "spend",
        help="buy in rounds: a share that keeps every recipe open, trainings, then the winner",
        description="Carry a plan out in rounds. Each round's decision, evidence and price is in "
        "OUT/spend.json before the next begins. The same command goes on where it was stopped.",
    )
    spend.add_argument("plan", metavar="PLAN.toml", help="what `fewsteps plan --out` wrote")
    spend.add_argument(
        "--budget",
        type=option(amount),
        metavar="N",
        help="teacher tokens, the pilot's included (default: the plan's)",
    )
    spend.add_argument("--out", required=True, metavar="DIR", help="folder of all purchases and trainings")
    spend.add_argument(
        "--buyer",
        metavar="MODULE:FUNCTION",
        help="a function (recipe, budget, seed, folder, demonstrations); default: fewsteps collect",
    )
    spend.add_argument("--seed", type=option(Seed), default=0, help="of purchases and trainings (default 0)")
    add_trainings(spend)
    spend.add_argument("--json", action="store_true", help="one JSON object on standard output")
    spend.set_defaults(handler=_spend)


def _spend(arguments: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from dataclasses import replace
    from pathlib import Path

    from agentloop.run.plan_file import read_plan
    from analysis.plan.costs import costs
    from analysis.plan.product import Product
    from analysis.plan.read import read_pilot
    from analysis.plan.trainer import Effort, named_trainer
    from analysis.spend.buyer import ProductBuyer
    from analysis.spend.rounds import Rounds, spend
    from occupancy.record.errors import InputError
    from occupancy.runs import open_run

    plan = read_plan(arguments.plan)
    if plan.axis != "inference":
        raise InputError(
            f"{arguments.plan} is on the {plan.axis} axis: rounds are bought on the inference axis"
        )
    arguments.run = plan.pilot
    bench = bench_of(arguments)
    if bench is None:
        raise InputError("rounds need trainings: give --trainer module:function, or --train FILE.toml")
    product = bench.trainer if isinstance(bench.trainer, Product) else None
    price = costs(read_pilot(plan.pilot))
    own = ProductBuyer(plan, price.demo, price.inference, product)
    minutes = float("inf") if arguments.gpu_minutes is None else arguments.gpu_minutes
    rounds = Rounds(
        open_run(plan.pilot),
        Path(arguments.out),
        plan.budget if arguments.budget is None else arguments.budget,
        own if arguments.buyer is None else named_trainer(arguments.buyer, of="--buyer"),
        bench.trainer,
        bench.name,
        effort=Effort(arguments.trainings, minutes),
        final=None if product is None else replace(product, keep_students=True),
        charged=plan.pilot_charged,
        pi_1=arguments.buyer is not None or product is not None,
        seed=arguments.seed,
        progress=say,
    )
    state = spend(rounds)
    said = [f"{name}: {step['said']}" for name, step in state["steps"].items()]
    plain = state | {"file": str(Path(arguments.out) / "spend.json")}
    if arguments.json:
        return show(arguments, plain, lambda: "", "")
    told = "\n".join([*said, f"spent {state['spent']:,.0f} teacher tokens; {plain['file']}"])
    sys.stdout.write(f"{printable(told)}\n")
    return 0
