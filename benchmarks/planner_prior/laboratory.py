"""Worlds of the laboratory whose student is a table, played for the prior over learning curves.

A table becomes the teacher as data grow: without such worlds the prior has only seen curves that flatten.
"""

from __future__ import annotations

from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analysis.plan.facts import facts_of
from analysis.plan.read import read_pilot
from benchmarks.planner_prior.cuts import Pool, Trace
from benchmarks.planner_prior.stored import STORED
from occupancy import Recipe, RunError, preset
from occupancy.record.rows import Rows
from occupancy.runs import create_run
from simulate.pilots.playing import TEACHER, PilotSize, cell_of, labels_of, pilot_rows
from simulate.pipelines.outcome import Owned, chances_of, truth
from simulate.worlds.families import MIXED, family
from simulate.worlds.students import Tabular
from simulate.worlds.types import World

TABLES = "lab-tables"
"""Any of the families, with a student that learns faster or slower than theirs."""
NAMES = (*(f"lab-{name}" for name in (*MIXED, "weak", "garnet")), TABLES)
LESS_FILTERED = {"op-critical": "op-success", "op-failed": "op-short"}
RATES = {
    "J0": "student",
    "JT": "teacher",
    "Tc": "learner",
    "Tf": "failed",
    "T_early": "early",
    "T_late": "late",
    "U0": "handback0",
    "U1": "handback1",
    "U5": "handback5",
}
"""Names of rates in the stored facts: in `Facts`."""
NUMBERS = {
    "T_max": "T_max",
    "nll_demo": "nll_demo",
    "nll_tail": "nll_tail",
    "nll_roll": "nll_rollout",
    "turns_demo": "turns_demo",
    "turns_tail": "turns_tail",
}


class Laboratory:
    """A world and its pilot; the attributes are those of `generate.Played`."""

    def __init__(self, name: str, number: int, seed: int) -> None:
        self.world, self.key = drawn(name, number, seed), (seed, number)
        recipe, info, rows = pilot_rows(self.world, seed=seed * 1000 + number)
        with TemporaryDirectory() as folder:
            create_run(f"{folder}/pilot", recipe, info).commit(rows)
            said = facts_of(read_pilot(f"{folder}/pilot"))
        self.name, self.shape = self.world.name, self.world.base.shape
        counts = {key: getattr(said, of) for key, of in RATES.items()}
        self.facts = {key: won[0] / won[1] if won else float("nan") for key, won in counts.items()}
        self.facts |= {"n_failed": said.failed[1] if said.failed else 0}
        for key, of in NUMBERS.items():
            value = getattr(said, of)
            self.facts[key] = float("nan") if value is None else value
        self.pool, self.price = pool_of(rows, self.world.A), price_of(rows)
        own, every = (labels_of(self.world, rows, only_success=only) for only in (True, False))
        self.owned: dict[str, Any] = {"plan": every, "plan-success": own, "rule": None}

    def J(self, counts: np.ndarray) -> float:
        """Exact pass@1 of a student trained on counts [X, A] of teacher turns."""
        world = self.world
        law = world.student.learn(world.base, world.features, counts)
        return float(world.start @ chances_of(world, law))

    def table(self, budget: float, owned: Owned | None, count: int, *key: int) -> list[list[float]]:
        """[count, 45] pass@1 of the options, `owned` being trained on beside what is bought."""
        seed = int(np.random.default_rng([*self.key, *key]).integers(2**31))
        columns = []
        for name, K, r in STORED:
            for recipe in self._recipes(name, K):
                settings: dict[str, Any] = {"budget": round(budget), "r": r, "owned": owned}
                try:
                    found = truth(self.world, recipe, **settings, seeds=count, seed=seed)
                except RunError:
                    continue
                columns.append(np.round(found.J, 5))
                break
        return [[float(value) for value in row] for row in np.transpose(columns)]

    def _recipes(self, name: str, K: int) -> list[Recipe]:
        """The option's recipe, and without its Psi, for where too few rollouts fail."""
        T = self.world.horizon
        depth = {"K": K if T > K else "inf"} if name in ("op-short", "op-failed") else {}
        return [preset(one, T_max=T, **depth) for one in (name, LESS_FILTERED.get(name, name))]

    def bought(self, share: int) -> tuple[Pool, float, Owned]:
        """Traces, teacher tokens, and labels (with the pilot's successes) of a purchase."""
        seed, number = self.key
        usual = PilotSize()
        size = replace(usual, tasks=usual.tasks * share, demos=usual.demos * share, handback=())
        rows = pilot_rows(self.world, size=size, seed=seed * 1000 + number + 500_000)[2]
        own, new = self.owned["plan-success"], labels_of(self.world, rows, only_success=True)
        both = Owned(own.demos + new.demos, own.on_policy + new.on_policy)
        return pool_of(rows, self.world.A), price_of(rows), both


def drawn(name: str, number: int, seed: int) -> World:
    """World `number` of a family of NAMES; those of TABLES have a learner of their own."""
    if name != TABLES:
        return family(name.removeprefix("lab-")).draw(seed * 1_000_003 + number + 1)
    rng = np.random.default_rng([seed, number, 7])
    of = NAMES[number % (len(NAMES) - 1)].removeprefix("lab-")
    learner = Tabular(float(np.exp(rng.uniform(np.log(0.5), np.log(6.0)))), float(rng.uniform(0.5, 1.0)))
    return replace(family(of).draw(seed * 1_000_003 + 500_000 + number), student=learner)


def price_of(rows: Rows) -> float:
    """Teacher tokens of a pilot's rows."""
    return float(sum(turn["output_tokens"] for turn in rows["turns"] if turn["author"] == TEACHER))


def pool_of(rows: Rows, actions: int) -> Pool:
    """Demonstrations and whole continuations of a pilot's rows; `actions` of the world."""
    episodes = {row["episode_id"]: row for row in rows["episodes"]}
    turns: dict[str, list[Any]] = {}
    for turn in rows["turns"]:
        if turn["author"] == TEACHER:
            turns.setdefault(turn["episode_id"], []).append(turn)
    found: dict[str, list[Trace]] = {"demo": [], "continuation": []}
    for name, row in episodes.items():
        if row["kind"] in found and name in turns:
            parent = episodes.get(row["parent"] or "")
            moves = np.array([cell_of(turn) for turn in turns[name]])
            found[row["kind"]].append(
                Trace(
                    moves[:, 0] * actions + moves[:, 1],
                    np.array([turn["output_tokens"] for turn in turns[name]], float),
                    bool(row["R"]),
                    bool(parent and parent["R"]),
                    parent["length"] if parent else 0,
                )
            )
    return Pool(tuple(found["demo"]), tuple(found["continuation"]))
