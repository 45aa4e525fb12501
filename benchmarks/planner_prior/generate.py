"""Play worlds of all families, and store what the prior is learnt from: one JSON file a world.

    python -m benchmarks planner_prior generate --worlds-file feature_worlds.py --out DIR --numbers 112

A file holds `facts` (what the pilot's run folder says), `small` (trainings on cuts of the pilot, exact
pass@1), `truth` (exact pass@1 of every option, repeated, by role and budget) and `rounds` (the same after a
first purchase). Sizes are in units of the pilot's cost. A file that is there is not made again, so `--first`
and `--families` divide the work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.feature_worlds_rounds import worlds_of
from benchmarks.planner_prior import families
from benchmarks.planner_prior.cuts import Key, cut, pool_of, purchase, student

ROLES = ("plan", "plan-success", "rule", "round")
"""Who buys: the plan with all of the pilot's traces, with its successes; a rule without a pilot; rounds."""
BOUGHT = {5: 1, 20: 3}
"""First purchase in pilot costs, by the budget in pilot costs."""
AFTER = {5: (0.4, 0.8), 20: (0.8, 1.6)}
"""Sizes of trainings after the purchase."""


def arms_of(INF: int) -> list[Key]:
    """What small trainings are cut as."""
    forms = (
        ("op-short", 1),
        ("op-short", 3),
        ("op-short", INF),
        ("op-success", INF),
        ("op-critical", INF),
        ("op-failed", 3),
        ("op-failed", INF),
        ("oec", INF),
    )
    return [("pure-bc", INF, 0.0), ("bc-success", INF, 0.0)] + [
        (name, K, r) for r in (0.5, 1.0) for name, K in forms
    ]


def facts(base: Any, pilot: Any) -> dict[str, float]:
    """What a pilot's run folder says about student, teacher and contexts; NaN where it cannot."""
    world = pilot.world
    by: dict[str, list[Any]] = {}
    for episode in pilot.episodes:
        by.setdefault(episode["kind"], []).append(episode)

    def mean(values: Any) -> float:
        return float(np.mean(values)) if len(values) else float("nan")

    def won(episodes: list[Any]) -> float:
        return mean([float(e["end"] == world.S) for e in episodes])

    def turns(episodes: list[Any]) -> float:
        return mean([len(e["s"]) for e in episodes])

    def tokens(episodes: list[Any]) -> float:
        return mean([float(world.tokens[e["s"]].sum()) for e in episodes])

    def nll(episodes: list[Any]) -> float:
        if not episodes:
            return float("nan")
        laws = [pilot.pi[world.ctx[e["s"]], e["a"]] for e in episodes]
        return mean(np.concatenate([-np.log(np.maximum(p, 1e-12)) for p in laws]))

    rollouts, demos, tails = by["rollout"], by["demo"], by["continuation"]
    failed = [c for c in tails if c["parent"]["end"] != world.S]
    early = [c for c in tails if c["t"] <= 0.5 * c["T"]]
    back = {f"U{k}": won([e for e in by["handback"] if e["K"] == k]) for k in base.HANDBACK}
    return {
        "J0": won(rollouts),
        "JT": won(demos),
        "Tc": won(tails),
        "Tf": won(failed),
        "Ts": won([c for c in tails if c["parent"]["end"] == world.S]),
        "n_failed": len(failed),
        "T_early": won(early),
        "T_late": won([c for c in tails if c["t"] > 0.5 * c["T"]]),
        **back,
        "T_max": world.horizon,
        "turns_roll": turns(rollouts),
        "turns_demo": turns(demos),
        "turns_tail": turns(tails),
        "tok_demo": tokens(demos),
        "tok_tail": tokens(tails),
        "tok_failed": tokens(failed),
        "nll_demo": nll(demos),
        "nll_tail": nll(tails),
        "nll_roll": nll(rollouts),
        "nll_failed": nll(failed),
        "nll_won": nll([c for c in tails if c["end"] == world.S] or tails),
    }


def play(
    base: Any, family: str, number: int, seed: int, reps: dict[str, int], *, rounds: bool = True
) -> dict[str, Any]:
    """Everything about one world, as it is stored.

    Args:
        base: the module of the file of worlds.
        family: one of `families.NAMES`.
        number: of the world in its family.
        seed: of all that is drawn.
        reps: repeats of the truth for each of ROLES.
        rounds: whether a first purchase is played too.
    """
    start = time.time()
    world = families.draw(base, family, number, seed)
    pilot = base.Pilot(world, seed * 1000 + number)
    said, pool, arms = facts(base, pilot), pool_of(pilot), arms_of(base.INF)
    whole = [(name, base.INF, 0.6) for name in ("pilot", "pilot-success")]

    def made(traces: Any, arm: Key, size: float, *key: int) -> dict[str, Any]:
        return cut(base, world, traces, arm, size, price=pilot.price, seed=[seed, number, *key])

    def table(budget: float, owned: Any, count: int, *key: int) -> list[list[float]]:
        fit = partial(student, base)
        runs = [
            base.pipelines(world, budget, owned, [seed, number, *key, k], None, fit)[0] for k in range(count)
        ]
        return [[round(run[o], 5) for o in base.OPTIONS] for run in runs]

    untrained = {"demo": 0.0, "op": 0.0, "kept": 0.0, "n": [0, 0], "full": True}
    untrained |= {"J": world.J(base.softmax(world.base)[world.ctx])}
    small = [{"arm": ("none", 0, 0.0), "size": 0.0, "seed": 0} | untrained]
    small += [made(pool, arm, 1.0, 0) for arm in whole]
    for arm in arms:
        for size, seeds in ((0.2, 3), (0.4, 3), (0.9, 1)):
            cuts = [made(pool, arm, size, int(100 * size), k) for k in range(seeds)]
            small += [one for one in cuts if one["full"] or size == 0.9]
    result: dict[str, Any] = {"family": family, "number": number, "seed": seed, "world": world.name}
    result |= {"exact": dict(world.facts), "facts": said, "price": pilot.price, "small": small}
    result |= {"truth": {}, "rounds": {}}
    for multiple in base.MULTIPLES:
        budget = multiple * pilot.price
        left = budget - pilot.price
        for role, tokens, owned in (
            ("plan", left, pilot.owned),
            ("plan-success", left, pilot.owned_success),
            ("rule", budget, None),
        ):
            result["truth"][f"{role}-{multiple}"] = table(tokens, owned, reps[role], multiple)
        if not rounds:
            continue
        bought = purchase(base, world, BOUGHT[multiple], seed * 1000 + number + 500_000)
        both = pool + pool_of(bought)
        own = tuple(a + b for a, b in zip(pilot.owned_success, bought.owned_success, strict=True))
        some = [
            made(both, arm, size, int(100 * size), k)
            for arm in arms
            for size in AFTER[multiple]
            for k in range(2)
        ]
        result["rounds"][str(multiple)] = {
            "price": bought.price / pilot.price,
            "small": [s for s in some if s["full"]] + [made(both, whole[1], 1.0, 0)],
            "truth": table(left - bought.price, own, reps["round"], multiple, 9),
        }
    return result | {"seconds": time.time() - start}


def main(arguments: list[str]) -> None:
    """Play the worlds that are not stored yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds-file", type=Path, required=True, help="not part of this repository")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--first", type=int, default=0, help="first number of a world")
    parser.add_argument("--numbers", type=int, default=112, help="worlds of each family")
    parser.add_argument("--families", default=",".join(families.NAMES))
    parser.add_argument("--reps", type=int, nargs=4, default=[1, 3, 2, 1], help=f"of {', '.join(ROLES)}")
    parser.add_argument("--no-rounds", action="store_true", help="play no first purchase")
    given = parser.parse_args(arguments)
    base, reps = worlds_of(given.worlds_file), dict(zip(ROLES, given.reps, strict=True))
    given.out.mkdir(parents=True, exist_ok=True)
    for number in range(given.first, given.first + given.numbers):
        for family in given.families.split(","):
            path = given.out / f"{family}-{given.seed}-{number:03d}.json"
            if path.exists():
                continue
            try:
                one = play(base, family, number, given.seed, reps, rounds=not given.no_rounds)
            except RuntimeError as error:
                print(f"{family} {number}: {error}", file=sys.stderr, flush=True)
                continue
            path.write_text(json.dumps(one))
            print(f"{one['world']} {one['seconds']:.1f} s", flush=True)
