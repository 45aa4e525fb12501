"""How the plan moves when something else were true: `fewsteps plan --what-if`.

prices=FILE.toml           other prices: planned anew
T_max=N                    a shorter horizon: longer episodes fail, turns beyond it are not bought
evaluation=TASKSxATTEMPTS  what an evaluation of that size could show

An evaluation's standard error is clustered by task: p (1 - p) (1 + (m - 1) ICC) / (n m) for n tasks with m
attempts each (Miller 2024). Two students are compared as if on different tasks, which errs wide: on the same
tasks the part that the tasks share cancels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from analysis.plan.costs import Prices
from analysis.plan.guesses import Guesses
from analysis.plan.offers import Purchase
from analysis.plan.pilot import Pilot
from analysis.plan.read import read_pilot
from analysis.plan.report import Plan
from occupancy.record.errors import DataError, InputError
from occupancy.record.prices import read_prices
from occupancy.record.recipe import K_text
from occupancy.record.specs import Size, read

POWER = 1.960 + 0.842
"""Standard errors of a difference that a two-sided test at 5 % sees with 80 % power."""
_DRAWS = 20_000
Answer = dict[str, Any]


def answers(
    folder: str | Path,
    questions: Sequence[str],
    *,
    pilot: Pilot,
    purchase: Purchase,
    found: Plan,
    replan: Callable[[Pilot, Purchase], Plan],
) -> tuple[Answer, ...]:
    """One answer a question, each against `found`, the plan as asked; `replan` plans anew in the same way."""
    answered = []
    for question in questions:
        asked = _read(question)
        if asked.prices is not None:
            other = replace(purchase, prices=Prices.from_toml(asked.prices, teacher=pilot.recipe.teacher))
            answered.append(_moved(question, found, replan(pilot, other)))
        elif asked.T_max is not None:
            cut = _shorter(folder, question, pilot, T_max=asked.T_max)
            moved = _moved(question, found, replan(cut, purchase))
            lost, every = len(pilot.contexts) - len(cut.contexts), len(pilot.contexts)
            if lost:
                moved["said"] += f" {lost} of {every} contexts lie beyond that turn and are left out."
            answered.append(moved | {"contexts_left_out": lost})
        elif asked.evaluation is not None:
            tasks, attempts = asked.evaluation
            answered.append(evaluation(question, pilot, found, tasks=tasks, attempts=attempts))
    return tuple(answered)


def check(questions: Sequence[str]) -> None:
    """Refuse what has no answer before anything is planned."""
    for question in questions:
        asked = _read(question)
        if asked.prices is not None:
            read_prices(asked.prices)


def _tasks_and_attempts(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text, re.ASCII)
    if found is None or int(found[1]) < 2 or int(found[2]) < 1:
        raise InputError(
            f"--what-if evaluation={text}: expected TASKSxATTEMPTS, at least 2 tasks and 1 attempt, as 200x4"
        )
    return int(found[1]), int(found[2])


@dataclass(frozen=True)
class _Asked:
    """What else might be true: one of these."""

    prices: str | None = None
    T_max: Size | None = None
    evaluation: Annotated[tuple[int, int], _tasks_and_attempts] | None = None


def _read(question: str) -> _Asked:
    return read(_Asked, [question], of="--what-if")


def _shorter(folder: str | Path, question: str, pilot: Pilot, *, T_max: int) -> Pilot:
    try:
        cut = read_pilot(folder, T_max=T_max)
    except DataError as error:
        raise InputError(f"--what-if {question!r} leaves no pilot to plan from: {error}") from error
    pool = max(pilot.pool, len(cut.clusters))
    return replace(cut, pool=pool, pool_stated=pilot.pool_stated, failed_tokens=pilot.failed_tokens)


def _moved(question: str, found: Plan, other: Plan) -> Answer:
    """The other plan against the one as asked."""
    before, after = found.recommended, other.recommended
    costs = ("cost_inference", "cost_training", "cost_money")
    moves = {name: _difference(getattr(before, name), getattr(after, name)) for name in ("pass_at_1", *costs)}
    same = before.arm.name == after.arm.name and found.status == other.status
    names = {"pass_at_1": "pass@1", "cost_inference": "teacher tokens", "cost_money": "money"}
    changed = [f"{said} {moves[name]:+,.3g}" for name, said in names.items() if moves[name]]
    change = f" ({', '.join(changed)})" if changed else ""
    status = "" if other.status == "ranked" else f" ({other.status})"
    return {
        "what_if": question,
        "status": other.status,
        "recommended": {"recipe": after.recipe, "K": K_text(after.K), "r_tokens": after.r_tokens}
        | {name: getattr(after, name) for name in ("contexts", "demos", "pass_at_1", *costs)},
        "recommendation_moves": not same,
        "moves": moves,
        "said": f"With {question}: {after.arm.name}{status}, {'as asked' if same else 'instead'}{change}.",
        "warnings": list(other.warnings),
    }


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def evaluation(question: str, pilot: Pilot, found: Plan, *, tasks: int, attempts: int) -> Answer:
    """What an evaluation on so many tasks, each tried so often, could show."""
    icc, measured = task_share(pilot)
    rivals = [c.pass_at_1 for c in found.not_worse]
    p = found.recommended.pass_at_1
    se = error(p, icc, tasks=tasks, attempts=attempts)
    smallest = POWER * math.sqrt(2) * se
    chance, loss = _finds_best(np.array(rivals), se) if len(rivals) > 1 else (None, None)
    said = (
        f"With {question}: pass@1 of {p:.3f} is measured to ± {se:.3f} (one SE, clustered by task), and a "
        f"difference below {smallest:.3f} would not show (5 %, power 80 %)"
    )
    if chance is not None:
        said += (
            f"; of the {len(rivals)} not distinguishable, the best measured is the best predicted with "
            f"{chance:.0%}, and choosing by it loses {loss:.4f} of pass@1"
        )
    return {
        "what_if": question,
        "tasks": tasks,
        "attempts": attempts,
        "pass_at_1": p,
        "icc": icc,
        "icc_measured": measured,
        "se": se,
        "se_difference": math.sqrt(2) * se,
        "se_difference_same_tasks": math.sqrt(2 * p * (1 - p) * (1 - icc) / (tasks * attempts)),
        "smallest_difference": smallest,
        "p_finds_best": chance,
        "expected_loss": loss,
        "said": f"{said}.",
    }


def error(p: float, icc: float, *, tasks: int, attempts: int) -> float:
    """Standard error of a success rate p, clustered by task."""
    return math.sqrt(p * (1 - p) * (1 + (attempts - 1) * icc) / (tasks * attempts))


def task_share(pilot: Pilot) -> tuple[float, bool]:
    """ICC of the rollouts: share of their variance between tasks; whether it is measured or guessed.

    One-way analysis of variance over the tasks that were rolled out more than once.
    """
    known = np.isfinite(pilot.rollouts.R)
    cluster, R = pilot.rollouts.cluster[known], pilot.rollouts.R[known]
    count = np.bincount(cluster, minlength=len(pilot.clusters))
    often = count[cluster] > 1
    cluster, R, n = cluster[often], R[often], count[count > 1]
    if len(n) < 2:
        return Guesses().icc, False
    mean = np.bincount(cluster, R, len(count))[count > 1] / n
    within = (R**2).sum() - (n * mean**2).sum()
    between = (n * mean**2).sum() - R.sum() ** 2 / len(R)
    ms_within, ms_between = within / (len(R) - len(n)), between / (len(n) - 1)
    each = (len(R) - (n**2).sum() / len(R)) / (len(n) - 1)
    total = ms_between + (each - 1) * ms_within
    return float(np.clip((ms_between - ms_within) / total, 0, 1)) if total > 0 else 0.0, True


def _finds_best(predicted: np.ndarray, se: float) -> tuple[float, float]:
    """Chance that the best measured is the best predicted, and the mean loss; measured with error `se`."""
    noise = se * np.random.default_rng(0).standard_normal((_DRAWS, len(predicted)))
    taken = predicted[(predicted + noise).argmax(1)]
    best = predicted.max()
    return float((taken == best).mean()), float(best - taken.mean())
