"""The plan with a model of what the student learns: pass@1 of every recipe, depth and share, with bands.

It needs contexts that come again (state ids, or equal contexts in several tasks) and demonstrations.
Where they are missing, or where hand-backs show no gain at all, the answer is Level 0's. The pilot's own
traces are part of what is trained on, whether its price is charged or not.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from analysis.plan import level0, signs
from analysis.plan.calibrate import Kappa
from analysis.plan.classes import find_classes
from analysis.plan.costs import Costs, costs, costs_of_contexts, demo_cost, pilot_price
from analysis.plan.larger import larger_pilot
from analysis.plan.level0 import Purchase
from analysis.plan.marginal import chances, not_worse
from analysis.plan.model import build
from analysis.plan.pilot import Flags, Floats, Pilot
from analysis.plan.predict import Option, Predictions, Spending, predict
from analysis.plan.reading import COARSER, LEAST_REPEATED, repeated_share
from analysis.plan.report import Candidate, Plan
from occupancy.record.recipe import INF, K_text, preset

DEPTHS = (1.0, 2.0, 3.0, 5.0)
SHARES = (0.25, 0.5, 0.75, 1.0)
FILTERED = ("op-success", "op-critical", "oec")
DRAWS = 500
MOST_UNSPENT = 0.1
"""Share of draws in which a filter may accept too little to spend the budget."""
DISCREPANCY, COARSER_DISCREPANCY, CALIBRATED = 0.3, 0.45, 0.12
"""Standard deviation of what the model gets wrong in log(1 - pass@1), in all candidates alike, for each
factor of e that the budget lies beyond the pilot; the second where contexts are told apart by state or
text, the third where trainings calibrated the curve."""
TILT, COARSER_TILT = 0.05, 0.2
"""The same between the ends of the range of K and of r and between filters and none, for each unit of pass@1
still to gain; the second where contexts are told apart by state or text."""
DEFAULT = Option("op-critical", INF, 0.75)
"""Recommended where a pilot tells nothing apart: in nine families of worlds, five of them with students that
learn by other rules than the model's, nothing else was so seldom far from the best (docs/planner.md)."""
LEAST_CONTEXTS, FEW_DEMOS = 4, 10
LARGEST_GAP = 0.2
"""A class chain that misses the student's measured J by more than this has not found the classes."""
_TOLD_BY = {
    "state_id": "no context comes twice, so they are told apart by the environment's state; how fast a model "
    "learns from that is a guess: believe the level less than the order",
    "observation": "no context comes twice, so they are told apart by what the last observation says, its "
    "numbers masked; how fast a model learns from that is a guess: believe the order little, the level less",
    "opening": "no context comes twice and no observation tells them apart: the turn and the first words of "
    "the last observation do; that says little of what one label teaches elsewhere",
}


def plan_pilot(pilot: Pilot, purchase: Purchase, *, seed: int = 0, kappa: Kappa | None = None) -> Plan:
    """Plan from a pilot in memory; the bootstrap is drawn with `seed`.

    kappa: what training runs said of the learning curve.
    """
    base = level0.plan_pilot(pilot, purchase, seed=seed)
    if base.status == "pilot_too_small" or not base.gain_exists:
        return base
    lacking = _lacking(pilot, base)
    if lacking:
        return replace(base, warnings=(*base.warnings, f"no pass@1 is predicted: {lacking}"))
    options = options_of(pilot)
    depths = sorted({int(min(option.K, pilot.recipe.T_max)) for option in options})
    classes = find_classes(pilot)
    model = build(
        pilot,
        classes,
        depths=tuple(depths),
        each=costs_of_contexts(pilot, axis=purchase.axis, prices=purchase.prices),
        demo_each=demo_cost(pilot, axis=purchase.axis, prices=purchase.prices),
        draws=DRAWS,
        seed=seed,
        kappa=kappa,
    )
    spending = Spending(
        level0.left_to_spend(pilot, purchase),
        by_training=purchase.axis == "training",
        owned_demos=purchase.owned_demos,
        owned_on_policy=purchase.owned_on_policy,
    )
    found = predict(model, options, spending=spending, seed=seed)
    if abs(found.gap[0]) > LARGEST_GAP:
        return replace(
            base,
            warnings=(
                *base.warnings,
                f"no pass@1 is predicted: the imagined worlds miss the student's measured J by "
                f"{found.gap[0]:+.3f} (expected at most {LARGEST_GAP}); more rollouts, or state ids that "
                f"tell more of the state, would help",
            ),
        )
    plan = _decided(pilot, purchase, base, options=options, found=found, seed=seed, kappa=kappa)
    price = pilot_price(pilot, axis=purchase.axis, prices=purchase.prices)
    more = larger_pilot(pilot, model, options, found.J, plan, spending=spending, price=price, seed=seed)
    known = None if kappa is None else kappa.to_dict()
    return replace(
        plan,
        calibrated=kappa is not None,
        pilot=plan.pilot | {"evsi": more, "kappa": known},
        warnings=(*plan.warnings, signs.sentence(classes.weights)),
    )


def options_of(pilot: Pilot) -> list[Option]:
    """What is compared: pure BC, op-short at every depth and four shares, and the filtered recipes."""
    finite = {*DEPTHS, *(float(k) for k in pilot.contexts.k)}
    depths = (*sorted(K for K in finite if pilot.recipe.T_max > K), INF)
    # Recipes that continue the same contexts stand together, so that they are played together.
    options = [Option("pure-bc", INF, 0.0)]
    for r in SHARES:
        options += [Option("op-short", K, r) for K in depths]
        if r in SHARES[1:]:
            options.append(Option("op-success", INF, r))
    return options + [Option(name, INF, r) for name, r in product(FILTERED[1:], SHARES[1:])]


def _lacking(pilot: Pilot, base: Plan) -> str:
    """What the pilot would need for a model; empty where it has it."""
    if len(base.candidates) < 2:
        return "hand-backs must have shown what at least one depth is worth besides the whole continuation"
    if not np.isfinite(pilot.demos.R).any():
        return "it needs demonstrations (`fewsteps collect --pilot` plays them)"
    different = int(pilot.steps.node.max()) + 1
    if different < LEAST_CONTEXTS:
        return (
            f"all {len(pilot.steps):,} turns are at {different} contexts, told apart by "
            f"{pilot.steps.identity} (expected at least {LEAST_CONTEXTS}); record ids that differ where "
            f"contexts do"
        )
    repeated = repeated_share(pilot.steps.node, pilot.steps.cluster, pilot.steps.teacher)
    if repeated < LEAST_REPEATED:
        return (
            f"only {repeated:.0%} of the student's turns are at contexts that another task met too "
            f"(expected {LEAST_REPEATED:.0%}), so nothing says what one label teaches elsewhere; collect "
            f"on more tasks"
        )
    return ""


def _decided(
    pilot: Pilot,
    purchase: Purchase,
    base: Plan,
    *,
    options: list[Option],
    found: Predictions,
    seed: int,
    kappa: Kappa | None,
) -> Plan:
    rng = np.random.default_rng(seed)
    coarser = pilot.steps.identity in COARSER
    tilt, unknown = (COARSER_TILT, COARSER_DISCREPANCY) if coarser else (TILT, DISCREPANCY)
    J = found.J[1:] + _tilt(options, found.J[1:], tilt, rng)
    mean = found.J[1:].mean(0)
    supplied = found.demos <= (pilot.pool if pilot.pool_stated else math.inf)
    supplied &= found.unspent <= MOST_UNSPENT
    score = np.where(supplied, mean, -np.inf)
    guess = int(np.argmax(score))
    kept = not_worse(mean[supplied], J[:, supplied])
    ranked = not kept.all()
    have = [option for option, there in zip(options, supplied, strict=True) if there]
    best = options.index(DEFAULT) if not ranked and DEFAULT in have else guess
    own = pilot_price(pilot, axis=purchase.axis, prices=purchase.prices)
    beyond = math.log1p(level0.left_to_spend(pilot, purchase) / own)
    low, high = band(J, (unknown if kappa is None else CALIBRATED) * beyond, rng)
    first = chances(np.where(supplied, J, -np.inf))
    regret = (J[:, supplied].max(1, keepdims=True) - J).mean(0)
    money, price = level0.money_of(pilot, purchase), costs(pilot, prices=purchase.prices)
    gains = {c.K: c for c in base.candidates}
    candidates = [
        _candidate(
            pilot,
            price,
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
        status="ranked" if ranked else "no_preference",
        level=1,
        recommended=candidates[best],
        fall_back=False,
        not_worse=tuple(c for c, keep in zip(usable, kept, strict=True) if keep),
        candidates=tuple(usable),
        unit="pass@1",
        warnings=(
            *_about(found, options, supplied, kappa, pilot.steps.identity),
            *(() if best == guess else (_why_default(candidates[best], candidates[guess]),)),
            *_few_demos(pilot),
            *_still_true(base),
        ),
    )


def band(J: Floats, discrepancy: float, rng: np.random.Generator) -> Floats:
    """[2, O] 90 % bands of draws [D, O] whose chance to fail is off by one log-normal factor a draw."""
    factor = np.exp(discrepancy * rng.standard_normal((len(J), 1)))
    return np.asarray(np.clip(np.quantile(1.0 - (1.0 - J) * factor, (0.05, 0.95), axis=0), 0.0, 1.0))


def _tilt(options: list[Option], J: Floats, tilt: float, rng: np.random.Generator) -> Floats:
    """[draws, O] error of the model that favours long or short, on-policy or not; smooth in K and r."""
    order = sorted({o.K for o in options})
    place = np.array(
        [[order.index(o.K) / max(len(order) - 1, 1), o.r, o.recipe in FILTERED] for o in options]
    )
    left = 1.0 - J.mean()
    return np.asarray(tilt * left * rng.standard_normal((len(J), 3)) @ (place - 0.5).T)


def _about(
    found: Predictions, options: list[Option], supplied: Flags, kappa: Kappa | None, identity: str
) -> tuple[str, ...]:
    low, high = (0.0, 0.0) if kappa is None else kappa.band()
    curve = (
        "pass@1 is from a model with a wide prior on the learning curve: a ranking only, its bands are not "
        "calibrated"
        if kappa is None
        else f"pass@1 is from a model whose learning curve was calibrated by trainings: half of a context is "
        f"learnt after {kappa.centre:.2g} labelled turns ({low:.2g} to {high:.2g} at 90 %)"
    )
    said = [
        f"{curve}. Before pinning, the imagined worlds miss the student's measured J by "
        f"{found.gap[0]:+.3f} and the teacher's by {found.gap[1]:+.3f}",
        "the pilot's own traces are counted as trained on; r is the share of what is bought beside them, and "
        "prefixes are made by the student trained on all demonstrations, the pilot's included",
        "leap is not compared: its switch time is the teacher's choice, which no uniform draw shows; "
        "oec is compared without its repetition filter",
    ]
    if identity in COARSER:
        said.append(_TOLD_BY[identity])
    refused = [o for o, have in zip(options, supplied, strict=True) if not have]
    if refused:
        said.append(
            f"{len(refused)} candidates are left out (first: {refused[0].recipe}, r={refused[0].r:g}): they "
            f"need more demonstrations than the pool has tasks, or their filters accept too little to spend "
            f"the budget"
        )
    return tuple(said)


def _few_demos(pilot: Pilot) -> tuple[str, ...]:
    shown = int(np.isfinite(pilot.demos.R).sum())
    if shown >= FEW_DEMOS:
        return ()
    return (f"the teacher's J rests on {shown} demonstrations (expected at least {FEW_DEMOS})",)


def _why_default(default: Candidate, guess: Candidate) -> str:
    return (
        f"`recommended` is the default; the model's own best guess is {guess.recipe} with K = "
        f"{K_text(guess.K)}, r = {guess.r_tokens:g} ({guess.pass_at_1:.3f} against {default.pass_at_1:.3f}): "
        f"in worlds of other kinds such differences did not hold"
    )


def _still_true(base: Plan) -> tuple[str, ...]:
    """Level 0's warnings that a prediction does not answer."""
    answered = ("pass_at_1, its band", "`recommended` is the fall-back", "either no depth's gain")
    return tuple(w for w in base.warnings if not w.startswith(answered))


def _candidate(
    pilot: Pilot, price: Costs, option: Option, found: Predictions, at: int, **known: Any
) -> Candidate:
    bc = option.recipe == "pure-bc"
    proposals = int(found.demos[at] if bc else found.proposals[at])
    n = max(math.ceil(proposals / pilot.pool), 1)
    recipe = preset(
        option.recipe,
        n=n,
        teacher=pilot.teacher,
        T_max=pilot.recipe.T_max,
        success_at=pilot.recipe.success_at,
        **({} if bc else {"K": option.K}),
    )
    demos = int(found.demos[at])
    tasks = proposals // n
    op_tasks, bc_tasks = (0, tasks) if bc else (tasks, min(demos, pilot.pool))
    return Candidate(
        recipe=option.recipe,
        recipe_hash=recipe.hash,
        K=option.K,
        n=n,
        tasks=tasks,
        r_tokens=option.r,
        r_tasks=op_tasks / max(op_tasks + bc_tasks, 1),
        contexts=int(found.contexts[at]),
        demos=demos,
        cost_inference=float(found.tokens[at]),
        cost_training=float(found.trained[at]),
        target_tokens=float(found.trained[at] * _retold(pilot)),
        sequence_tokens=_sequences(price, option, found, at),
        **known,
    )


def _sequences(price: Costs, option: Option, found: Predictions, at: int) -> float:
    """Tokens of all training rows: kept ones are as long as all are, and as many as their tokens' share."""
    depth = int(min(option.K, len(price.sequence))) - 1
    rows = found.contexts[at] * price.sequence[depth] if found.contexts[at] else 0.0
    rows += found.demos[at] * price.demo_sequence if found.demos[at] else 0.0
    return float(rows * found.trained[at] / max(found.tokens[at], 1e-9))


def _retold(pilot: Pilot) -> float:
    """Student-tokenizer tokens trained on for one teacher token that is; NaN without a tokenizer."""
    turns = (pilot.contexts.turns, pilot.demo_turns)
    student, output = (
        sum(float((amount * part.trained).sum()) for amount, part in zip(amounts, turns, strict=True))
        for amounts in ([part.student for part in turns], [part.output for part in turns])
    )
    return student / output if output else math.nan
