"""Play worlds of all families, and store what the prior is learnt from: one JSON file a world.

    python -m benchmarks planner_prior.generate --worlds-file feature_worlds.py --out DIR --numbers 112

A file holds `facts` (what the pilot's run folder says), `small` (trainings on cuts of the pilot, exact
pass@1), `truth` (exact pass@1 of every option, repeated, by role and budget) and `rounds` (the same after a
first purchase). Sizes are in units of the pilot's cost. A file that is there is not made again, so `--first`
and `--family` divide the work.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planner_prior import families, laboratory
from benchmarks.planner_prior.cuts import Key, Pool, cut, pool_of, purchase, student
from benchmarks.planner_prior.laboratory import Laboratory
from benchmarks.planner_prior.stored import INF
from occupancy import RunError

ROLES = ("plan", "plan-success", "rule", "round")
"""Who buys: the plan with all of the pilot's traces, with its successes; a rule without a pilot; rounds."""
BOUGHT = {5: 1, 20: 3}
"""First purchase in pilot costs, by the budget in pilot costs."""
AFTER = {5: (0.4, 0.8), 20: (0.8, 1.6)}
"""Sizes of trainings after the purchase."""


def worlds_of(file: Path) -> Any:
    """The module of a file, under its own name, so that what is pickled can be read again."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or not file.is_file():
        raise SystemExit(f"--worlds-file {file}: expected a Python file with the classes of worlds")
    assert spec.loader is not None
    worlds = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = worlds
    spec.loader.exec_module(worlds)
    return worlds


FORMS = [("op-short", K) for K in (1, 3, INF)] + [("op-success", INF), ("op-critical", INF)]
FORMS += [("op-failed", 3), ("op-failed", INF), ("oec", INF)]
ARMS: list[Key] = [("pure-bc", INF, 0.0), ("bc-success", INF, 0.0)]
"""What small trainings are cut as."""
ARMS += [(name, K, r) for r in (0.5, 1.0) for name, K in FORMS]


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
        "n_failed": len(failed),
        "T_early": won(early),
        "T_late": won([c for c in tails if c["t"] > 0.5 * c["T"]]),
        **back,
        "T_max": world.horizon,
        "turns_demo": turns(demos),
        "turns_tail": turns(tails),
        "nll_demo": nll(demos),
        "nll_tail": nll(tails),
        "nll_roll": nll(rollouts),
    }


class Played:
    """A world of the file of worlds and its pilot, as `play` asks for them.

    Attributes:
        name, facts: of the world, and what the pilot says.
        pool, owned: the pilot's traces, and its labels: all, and those of its successes.
        price: teacher tokens of the pilot.
        shape: (X, A), contexts and actions.
    """

    def __init__(self, base: Any, family: str, number: int, seed: int) -> None:
        self.base, self.key = base, (seed, number)
        self.world = families.draw(base, family, number, seed)
        pilot = base.Pilot(self.world, seed * 1000 + number)
        self.name, self.facts = self.world.name, facts(base, pilot)
        self.pool, self.price, self.shape = pool_of(pilot), pilot.price, (self.world.X, self.world.A)
        self.owned = {"plan": pilot.owned, "plan-success": pilot.owned_success, "rule": None}

    def fitted(self, base: Any, world: Any, counts: np.ndarray) -> np.ndarray:
        """[X, A] the student trained on counts [X, A] of teacher turns."""
        return student(base, world, counts)

    def J(self, counts: np.ndarray) -> float:
        """Exact pass@1 of a student trained on counts [X, A] of teacher turns."""
        return float(self.world.J(self.fitted(self.base, self.world, counts)[self.world.ctx]))

    def table(self, budget: float, owned: Any, count: int, *key: int) -> list[list[float]]:
        """[count, 45] pass@1 of the options, `owned` being trained on beside what is bought."""
        fit, seeds = partial(self.fitted, self.base), [[*self.key, *key, k] for k in range(count)]
        runs = [self.base.pipelines(self.world, budget, owned, s, None, fit)[0] for s in seeds]
        return [[round(run[o], 5) for o in self.base.OPTIONS] for run in runs]

    def bought(self, share: int) -> tuple[Pool, float, Any]:
        """Traces, teacher tokens, and labels (with the pilot's successes) of a purchase."""
        seed, number = self.key
        found = purchase(self.base, self.world, share, seed * 1000 + number + 500_000)
        pairs = zip(self.owned["plan-success"], found.owned_success, strict=True)
        return pool_of(found), found.price, tuple(a + b for a, b in pairs)


def play(
    world: Played | Laboratory,
    family: str,
    number: int,
    seed: int,
    reps: dict[str, int],
    *,
    rounds: bool = True,
) -> dict[str, Any]:
    """Everything about one world, as it is stored.

    Args:
        world: and its pilot.
        family: one of `families.NAMES`, or one of `laboratory.NAMES`.
        number: of the world in its family.
        seed: of all that is drawn.
        reps: repeats of the truth for each of ROLES.
        rounds: whether a first purchase is played too.
    """
    start = time.time()
    whole = [(name, INF, 0.6) for name in ("pilot", "pilot-success")]

    def made(traces: Any, arm: Key, size: float, *key: int) -> dict[str, Any]:
        settings: dict[str, Any] = {"price": world.price, "seed": [seed, number, *key]}
        return cut(world.J, world.shape, traces, arm, size, **settings)

    untrained = {"demo": 0.0, "op": 0.0, "kept": 0.0, "n": [0, 0], "full": True}
    untrained |= {"J": world.J(np.zeros(world.shape))}
    small = [{"arm": ("none", 0, 0.0), "size": 0.0, "seed": 0} | untrained]
    small += [made(world.pool, arm, 1.0, 0) for arm in whole]
    for arm in ARMS:
        for size, seeds in ((0.2, 3), (0.4, 3), (0.9, 1)):
            cuts = [made(world.pool, arm, size, int(100 * size), k) for k in range(seeds)]
            small += [one for one in cuts if one["full"] or size == 0.9]
    result: dict[str, Any] = {"family": family, "number": number, "seed": seed, "world": world.name}
    result |= {"facts": world.facts, "price": world.price, "small": small}
    result |= {"truth": {}, "rounds": {}}
    for multiple, share in BOUGHT.items():
        budget = multiple * world.price
        left = budget - world.price
        for role, owned in world.owned.items():
            tokens = budget if role == "rule" else left
            result["truth"][f"{role}-{multiple}"] = world.table(tokens, owned, reps[role], multiple)
        if not rounds:
            continue
        traces, price, own = world.bought(share)
        both = world.pool + traces
        some = [
            made(both, arm, size, int(100 * size), k)
            for arm in ARMS
            for size in AFTER[multiple]
            for k in range(2)
        ]
        result["rounds"][str(multiple)] = {
            "price": price / world.price,
            "small": [s for s in some if s["full"]] + [made(both, whole[1], 1.0, 0)],
            "truth": world.table(left - price, own, reps["round"], multiple, 9),
        }
    return result | {"seconds": time.time() - start}


def main(
    *,
    out: Path,
    worlds_file: Path | None = None,  # not part of this repository; `lab-` needs none
    seed: int = 77,
    first: int = 0,  # number of a world
    numbers: int = 112,  # worlds of each family
    family: list[str] = list(families.NAMES),  # noqa: B006 - read alone
    reps: tuple[int, ...] = (1, 3, 2, 1),  # of ROLES
    no_rounds: bool = False,  # play no first purchase
) -> None:
    """Play the worlds that are not stored yet."""
    if worlds_file is None and not set(family) <= set(laboratory.NAMES):
        raise SystemExit("--worlds-file is needed for all families but the laboratory's own (lab-...)")
    base = worlds_of(worlds_file) if worlds_file else None
    repeats = dict(zip(ROLES, reps, strict=True))
    out.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + numbers):
        for name in family:
            path = out / f"{name}-{seed}-{number:03d}.json"
            if path.exists():
                continue
            try:
                key = (name, number, seed)
                world = Laboratory(*key) if name in laboratory.NAMES else Played(base, *key)
                one = play(world, *key, repeats, rounds=not no_rounds)
            except (RuntimeError, RunError) as error:
                print(f"{name} {number}: {error}", file=sys.stderr, flush=True)
                continue
            path.write_text(json.dumps(one))
            print(f"{one['world']} {one['seconds']:.1f} s", flush=True)
