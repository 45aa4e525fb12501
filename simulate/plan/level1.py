"""The plan with a model of what the student learns: pass@1 of every recipe, depth and share, with bands.

It needs contexts that come again (state ids, or equal contexts in several tasks) and demonstrations.
Where they are missing, or where hand-backs show no gain at all, the answer is Level 0's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from occupancy.recipe import INF, preset
from simulate.plan import level0
from simulate.plan.classes import LEAST_REPEATED, find_classes, repeated_share
from simulate.plan.costs import costs_of_contexts, demo_cost
from simulate.plan.level0 import Purchase
from simulate.plan.marginal import chances, not_worse
from simulate.plan.model import build
from simulate.plan.pilot import Flags, Floats, Pilot
from simulate.plan.predict import Option, Predictions, predict
from simulate.plan.report import Candidate, Plan

SHARES = (0.25, 0.5, 0.75, 1.0)
FILTERED = ("op-success", "op-critical", "oec")
DRAWS = 200
DISCREPANCY = 0.03
"""Standard deviation of what the model gets wrong in pass@1 of all candidates alike."""
TILT = 0.05
"""The same between the ends of the range of K and of r, for each unit of pass@1 still to gain."""
LARGEST_GAP = 0.1
"""A class chain that misses the student's measured J by more than this has not found the classes."""


def plan_pilot(pilot: Pilot, purchase: Purchase, *, seed: int = 0) -> Plan:
    """Plan from a pilot in memory; the bootstrap is drawn with `seed`."""
    base = level0.plan_pilot(pilot, purchase, seed=seed)
    if base.status == "pilot_too_small" or not base.gain_exists:
        return base
    lacking = _lacking(pilot, base)
    if lacking:
        return replace(base, warnings=(*base.warnings, f"no pass@1 is predicted: {lacking}"))
    options = options_of(pilot)
    model = build(
        pilot,
        find_classes(pilot),
        depths=(*(int(k) for k in pilot.contexts.k), pilot.recipe.T_max),
        each=costs_of_contexts(pilot, axis=purchase.axis, prices=purchase.prices),
        demo_each=demo_cost(pilot, axis=purchase.axis, prices=purchase.prices),
        draws=DRAWS,
        seed=seed,
    )
    found = predict(model, options, budget=level0.left_to_spend(pilot, purchase))
    if abs(found.gap[0]) > LARGEST_GAP:
        return replace(
            base,
            warnings=(
                *base.warnings,
                f"no pass@1 is predicted: the class chain misses the student's measured J by "
                f"{found.gap[0]:+.3f} (expected at most {LARGEST_GAP}); more rollouts, or state ids that "
                f"tell more of the state, would help",
            ),
        )
    return _decided(pilot, purchase, base, options=options, found=found, seed=seed)


def options_of(pilot: Pilot) -> list[Option]:
    """What is compared: pure BC, every measured depth at four shares, and the filtered recipes."""
    depths = (*(float(k) for k in pilot.contexts.k), INF)
    return [
        Option("pure-bc", INF, 0.0),
        *(Option("op-short", K, r) for K, r in product(depths, SHARES)),
        *(Option(name, INF, r) for name, r in product(FILTERED, (0.5, 0.75))),
    ]


def _lacking(pilot: Pilot, base: Plan) -> str:
    """What the pilot would need for a model; empty where it has it."""
    if len(base.candidates) < 2:
        return "hand-backs must have shown what at least one depth is worth besides the whole continuation"
    if not np.isfinite(pilot.demos.R).any():
        return "it needs demonstrations (`fewsteps collect --pilot` plays them)"
    repeated = repeated_share(pilot.steps)
    if repeated < LEAST_REPEATED:
        return (
            f"only {repeated:.0%} of the student's turns are at contexts that another task met too "
            f"(expected {LEAST_REPEATED:.0%}), so nothing says what one label teaches elsewhere; record "
            f"state ids"
        )
    return ""


def _decided(
    pilot: Pilot, purchase: Purchase, base: Plan, *, options: list[Option], found: Predictions, seed: int
) -> Plan:
    rng = np.random.default_rng(seed)
    J = found.J[1:] + _tilt(options, found.J[1:], rng)
    mean = found.J[1:].mean(0)
    supplied = found.demos <= (pilot.pool if pilot.pool_stated else math.inf)
    score = np.where(supplied, mean, -np.inf)
    best = int(np.argmax(score))
    kept = not_worse(mean[supplied], J[:, supplied])
    noise = DISCREPANCY * rng.standard_normal((len(J), 1))
    low, high = np.clip(np.quantile(J + noise, (0.05, 0.95), axis=0), 0.0, 1.0)
    first = chances(np.where(supplied, J, -np.inf))
    regret = (J[:, supplied].max(1, keepdims=True) - J).mean(0)
    money = level0.money_of(pilot, purchase)
    gains = {c.K: c for c in base.candidates}
    candidates = [
        _candidate(
            pilot,
            option,
            found,
            at,
            pass_at_1=float(mean[at]),
            low=float(low[at]),
            high=float(high[at]),
            p_best=float(first[at]),
            regret=float(regret[at]),
            value=float(mean[at]),
            cost_money=None if money is None else float(money * found.tokens[at]),
            gain=gains[option.K].gain if option.recipe == "op-short" and option.K in gains else None,
            gain_se=gains[option.K].gain_se if option.recipe == "op-short" and option.K in gains else None,
        )
        for at, option in enumerate(options)
    ]
    usable = [c for c, have in zip(candidates, supplied, strict=True) if have]
    return replace(
        base,
        status="ranked" if not kept.all() else "no_preference",
        level=1,
        recommended=candidates[best] if not kept.all() else base.recommended,
        fall_back=bool(kept.all()),
        not_worse=tuple(c for c, keep in zip(usable, kept, strict=True) if keep),
        candidates=tuple(usable),
        unit="pass@1",
        warnings=(*_about(found, options, supplied), *_still_true(base)),
    )


def _tilt(options: list[Option], J: Floats, rng: np.random.Generator) -> Floats:
    """[draws, O] error of the model that favours long or short, on-policy or not; smooth in K and r."""
    order = sorted({o.K for o in options})
    place = np.array([[order.index(o.K) / max(len(order) - 1, 1), o.r] for o in options]) - 0.5
    left = 1.0 - J.mean()
    return np.asarray(TILT * left * rng.standard_normal((len(J), 2)) @ place.T)


def _about(found: Predictions, options: list[Option], supplied: Flags) -> tuple[str, ...]:
    said = [
        f"pass@1 is from a model with a wide prior on the learning curve: a ranking only, its bands are not "
        f"calibrated. Before pinning, the class chain misses the student's measured J by {found.gap[0]:+.3f} "
        f"and the teacher's by {found.gap[1]:+.3f}",
        "leap is not compared: its switch time is the teacher's choice, which no uniform draw shows; "
        "oec is compared without its repetition filter",
    ]
    refused = [o for o, have in zip(options, supplied, strict=True) if not have]
    if refused:
        said.append(
            f"{len(refused)} candidates need more demonstrations than the pool has tasks and are left out: a "
            f"teacher that always plays a task in the same way shows nothing new"
        )
    return tuple(said)


def _still_true(base: Plan) -> tuple[str, ...]:
    """Level 0's warnings that a prediction does not answer."""
    answered = ("pass_at_1, its band", "`recommended` is the fall-back", "either no depth's gain")
    return tuple(w for w in base.warnings if not w.startswith(answered))


def _candidate(pilot: Pilot, option: Option, found: Predictions, at: int, **known: Any) -> Candidate:
    contexts, demos = int(found.contexts[at]), int(found.demos[at])
    bc = option.recipe == "pure-bc"
    n = max(math.ceil((demos if bc else contexts) / pilot.pool), 1)
    changes: dict[str, Any] = {} if bc else {"K": option.K, "rho": "pi_0" if option.r == 1 else "pi_1"}
    recipe = preset(
        option.recipe,
        n=n,
        teacher=pilot.teacher,
        T_max=pilot.recipe.T_max,
        success_at=pilot.recipe.success_at,
        **changes,
    )
    op_tasks, bc_tasks = contexts // n, demos // n if bc else min(demos, pilot.pool)
    return Candidate(
        recipe=option.recipe,
        recipe_hash=recipe.hash,
        K=option.K,
        n=n,
        tasks=bc_tasks if bc else op_tasks,
        r_tokens=option.r,
        r_tasks=op_tasks / max(op_tasks + bc_tasks, 1),
        contexts=contexts,
        demos=demos,
        cost_inference=float(found.tokens[at]),
        cost_training=float(found.trained[at]),
        **known,
    )
