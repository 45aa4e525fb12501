"""From a run folder to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from analysis.plan.costs import Prices
from analysis.plan.level0 import Purchase
from analysis.plan.level1 import plan_pilot
from analysis.plan.read import read_pilot, teacher_tokens
from analysis.plan.report import Plan
from analysis.plan.trained import learn_kappa
from analysis.plan.trainings import read_trainings
from analysis.plan.what_if import answers, check
from occupancy.record.errors import InputError


def plan(
    folder: str | Path,
    *,
    budget: float,
    axis: str = "inference",
    already: Sequence[str | Path] = (),
    prices: Prices | None = None,
    pool: int | None = None,
    seed: int = 0,
    what_if: Sequence[str] = (),
    calibrate: Sequence[str | Path] = (),
) -> Plan:
    """Plan from a run folder. budget: teacher tokens, or money on the money axis.

    already: run folders whose data are sunk; where `folder` is one of them its price is not charged.
    pool: tasks that the budget can be spread over; None for those of the pilot.
    what_if: questions that are answered beside it; see `analysis.plan.what_if`.
    calibrate: runs with trainings on the pilot's traces, and evaluations of them.
    """
    if seed < 0:
        raise InputError(f"--seed {seed}: expected a whole number of at least 0")
    check(what_if)
    sunk, own = {Path(run).resolve() for run in already}, Path(folder).resolve()
    paid = [teacher_tokens(run) for run in sunk]
    others = [teacher_tokens(run) for run in sunk - {own}]
    purchase = Purchase(
        budget,
        axis=axis,
        prices=prices,
        charged=own not in sunk,
        already_tokens=sum(map(sum, paid)),
        owned_demos=sum(demos for demos, _ in others),
        owned_on_policy=sum(rest for _, rest in others),
    )
    pilot = read_pilot(folder)
    if pool is not None and pool < len(pilot.clusters):
        raise InputError(
            f"a pool of {pool} tasks: the pilot alone has {len(pilot.clusters)}; give at least those"
        )
    kappa = None
    if calibrate:
        kappa = learn_kappa(pilot, read_trainings(calibrate, pilot, folder), seed=seed)
    if pool is not None:
        pilot = replace(pilot, pool=pool, pool_stated=True)
    found = plan_pilot(pilot, purchase, seed=seed, kappa=kappa)
    if kappa is not None and not found.calibrated:
        unused = "the trainings are not used: this plan has no model of what the student learns"
        found = replace(found, warnings=(*found.warnings, unused))
    replan = partial(plan_pilot, seed=seed, kappa=kappa)
    asked = answers(folder, what_if, pilot=pilot, purchase=purchase, found=found, replan=replan)
    return replace(found, what_if=asked)
