"""Worlds whose students are trained on D_BC too: what it changes to count D_BC in the sizes of curves.

    python -m benchmarks planner_prior.beside --worlds-file feature_worlds.py --data DIR --numbers 8

The student of a pilot is pi_1, made of demonstrations worth .2 to 4 pilot costs, and these are part of every
training. A world takes 10 CPU seconds; what is in DIR is not played again. Means over worlds, in points of
pass@1, by the prior that ships; its nine families are known to it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.curves.curves import posterior
from benchmarks.planner_prior import families
from benchmarks.planner_prior.cuts import pool_of, student
from benchmarks.planner_prior.designs import DESIGNS, chosen, made
from benchmarks.planner_prior.generate import Played, facts, play, worlds_of
from benchmarks.planner_prior.judge import bands
from benchmarks.planner_prior.stored import BOTH, VARIED, facts_of, truth
from occupancy import RunError

LEAST, MOST = 0.2, 4.0
"""Of D_BC, in pilot costs."""
REPS = {"plan": 1, "plan-success": 3, "rule": 0}


class Begun(Played):
    """A world whose student begins with D_BC.

    Attributes:
        sunk: teacher tokens of D_BC in pilot costs.
        first: [X, A] its turns, part of every training.
    """

    def __init__(self, base: Any, family: str, number: int, seed: int) -> None:
        self.base, self.key = base, (seed, number)
        self.world = families.draw(base, family, number, seed)
        place = seed * 1000 + number
        price, rng = base.Pilot(self.world, place).price, np.random.default_rng([seed, number, 4242])
        tokens = price * float(np.exp(rng.uniform(np.log(LEAST), np.log(MOST))))
        self.first = base.demos(self.world, tokens, rng)
        pi_0 = self.world.base
        self.world.base = np.log(np.maximum(student(base, self.world, self.first), 1e-30))
        pilot = base.Pilot(self.world, place)
        self.world.base = pi_0
        self.name, self.exact, self.facts = self.world.name, dict(self.world.facts), facts(base, pilot)
        self.pool, self.price, self.shape = pool_of(pilot), pilot.price, (self.world.X, self.world.A)
        self.owned = {"plan": pilot.owned, "plan-success": pilot.owned_success}
        self.sunk = tokens / self.price

    def fitted(self, base: Any, world: Any, counts: np.ndarray) -> np.ndarray:
        """[X, A] the student of D_BC and counts."""
        return student(base, world, counts + self.first)


def judged(raw: dict[str, Any], *, counted: bool) -> list[dict[str, float]]:
    """A row for each budget, with D_BC counted in the sizes or not."""
    sunk = raw["sunk"] if counted else 0.0
    known, found = replace(facts_of(raw), sunk=sunk), []
    rng = np.random.default_rng([raw["number"], 5])
    trained = [replace(t, sunk_tokens=sunk) for t in made(chosen(raw["small"], DESIGNS["both"]), rng)]
    post = posterior(trained, known)
    for multiple in (5, 20):
        true = np.concatenate([truth(raw, multiple, role) for role in ("plan-success", "plan")])
        J, (low, high) = post.expected(BOTH, multiple), bands(post, BOTH, multiple)
        found.append(
            {
                "regret": 100 * (true.max() - true[int(J.argmax())]),
                "predicted minus true": 100 * float((J - true).mean()),
                "rms error": 100 * float(np.sqrt(((J - true) ** 2).mean())),
                "bands hold": float(((low <= true) & (true <= high)).mean()),
                "width": float((high - low).mean()),
            }
        )
    return found


def main(*, data: Path, worlds_file: Path, seed: int = 9107, first: int = 0, numbers: int = 8) -> None:
    """Play the worlds that are not there yet, and print what both ways of counting give."""
    base = worlds_of(worlds_file)
    data.mkdir(parents=True, exist_ok=True)
    rows: dict[bool, list[list[dict[str, float]]]] = {False: [], True: []}
    for number in range(first, first + numbers):
        for family in (name for name in families.NAMES if name not in VARIED):
            file = data / f"{family}-{number:03d}.json"
            try:
                if not file.exists():
                    world = Begun(base, family, number, seed)
                    one = play(world, family, number, seed, REPS, rounds=False)
                    file.write_text(json.dumps(one | {"sunk": world.sunk}))
            except (RuntimeError, RunError) as error:
                print(f"{family} {number}: {error}", file=sys.stderr, flush=True)
                continue
            for counted, found in rows.items():
                found.append(judged(json.loads(file.read_text()), counted=counted))
    for counted, found in rows.items():
        for at, multiple in enumerate((5, 20)):
            mean = {name: np.mean([row[at][name] for row in found]) for name in found[0][0]}
            told = ", ".join(f"{name} {value:.3g}" for name, value in mean.items())
            print(f"D_BC {'' if counted else 'not '}counted, {len(found)} worlds, budget {multiple}: {told}")
