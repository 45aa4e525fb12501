"""Regret of `fewsteps spend` in the worlds of a file that brings its own students, teachers and truth.

    python -m benchmarks feature_worlds_rounds --file FILE.py --worlds 24 --seed 7 --out DIR

FILE.py has `draw(number, seed)`, `Pilot(world, seed)`, `write`, `fit`, `softmax`, `pipelines`, `OPTIONS` and
`INF`, as the file that judges `fewsteps plan` in feature worlds has. Each world is an environment with a
student and a teacher: episodes are bought one by one until the budget is spent, a student is trained on run
folders, and its pass@1 is exact.
Regret is in points against the best of all options with and without a pilot, pilot and rounds charged.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from analysis.plan.trainer import Effort
from analysis.spend.rounds import Rounds, spend
from analysis.spend.state import decision
from benchmarks.planner_prior.generate import worlds_of
from occupancy.record.recipe import Recipe
from occupancy.runs import create_run, open_run

TASKS, ATTEMPTS = 100, 4
"""Of an evaluation."""


class Market:
    """One world: what can be bought in it, and students trained on what was bought."""

    def __init__(self, worlds: Any, world: Any, pilot: Any) -> None:
        self.worlds, self.world = worlds, world
        self.shown: dict[tuple[str, int], tuple[int, int]] = {}
        self.J = float("nan")
        self.remember(pilot)

    def remember(self, pilot: Any) -> None:
        """Which context and action every turn of episodes was."""
        for e in pilot.episodes:
            for j, (s, a) in enumerate(zip(e["s"], e["a"], strict=True)):
                self.shown[e["id"], e["first"] + j] = int(self.world.ctx[s]), int(a)

    def student(self, folders: list[Path]) -> np.ndarray:
        """[X, A] law of the student trained on the accepted traces of run folders."""
        counts = np.zeros((self.world.X, self.world.A))
        for folder in folders:
            run = open_run(folder)
            kept = set(run.read("traces", columns=["episode_id"]).column(0).to_pylist())
            for turn in run.read("turns", columns=["episode_id", "t", "author"]).to_pylist():
                if turn["author"] == "teacher" and turn["episode_id"] in kept:
                    counts[self.shown[turn["episode_id"], turn["t"]]] += 1
        law: np.ndarray = self.worlds.fit(self.world, counts)
        return law

    def train(self, folders: list[Path], seed: int) -> dict[str, list[float]]:
        """The trainer: rewards of new tasks; the exact pass@1 is left in `J`."""
        self.J = self.world.J(self.student(folders)[self.world.ctx])
        won = np.random.default_rng([seed, 5]).random((TASKS, ATTEMPTS)) < self.J
        return {f"test-{q:03d}": [float(w) for w in row] for q, row in enumerate(won)}

    def buy(self, recipe: Recipe, budget: float, seed: int, out: Path, demonstrations: list[Path]) -> None:
        """The buyer: episodes in order until the next one would pass the budget."""
        if (out / "run.json").exists():
            return
        w, worlds = self.world, self.worlds
        player = object.__new__(worlds.Pilot)
        player.world, player.episodes, player.rng = w, [], np.random.default_rng([seed, 13])
        player.pi = self.student(demonstrations) if demonstrations else worlds.softmax(w.base)
        player.cum = np.cumsum(player.pi, 1)[w.ctx]
        left, number = float(budget), 0
        while left > 0:
            task, number = f"bought-{seed}-{number:06d}", number + 1
            start = int(min(np.searchsorted(w.cum0, player.rng.random()), w.S - 1))
            episodes, price = self._proposal(player, recipe, start)
            if price > left:
                break
            left -= price
            parent = None
            for kind, key, played, more in episodes:
                parent = player.add(task, kind, key, played, s0=start, parent=parent, **more)
        rows = player.rows("ids", recipe)
        rows["traces"] = [row for row in rows["traces"] if self._accepted(recipe, row, player)]
        self.remember(player)
        info = {"kind": "collect", "environment": f"world {w.name}", "student": "pi_0", "teacher": "teacher"}
        run = create_run(out.with_name(f".{out.name}"), recipe, info | {"tasks": "bought", "seed": seed})
        run.commit(rows)
        run.folder.rename(out)

    def _proposal(self, player: Any, recipe: Recipe, start: int) -> tuple[list[Any], float]:
        """Episodes of one task, and what the teacher's part costs."""
        w = self.world
        if recipe.rho == "teacher":
            shown = player.play(start, 1, w.horizon, teacher_only=True)
            more = {"K": w.horizon, "t": 1}
            return [("demo", (-1, -1, 0, -1), shown, more)], float(w.tokens[shown["s"]].sum())
        rollout = player.play(start, 1, 0)
        episodes: list[Any] = [("rollout", (0, -1, -1, -1), rollout, {})]
        T = len(rollout["s"])
        fixed = recipe.switch.law == "fixed"
        t = int(player.rng.integers(1, (w.horizon if fixed else T) + 1))
        if (
            t > T
            or (recipe.psi == "without_success" and rollout["end"] == w.S)
            or self._repeats(recipe, rollout)
        ):
            return episodes, 0.0
        cap = int(min(recipe.K, w.horizon - t + 1))
        tail = player.play(rollout["s"][t - 1], t, cap, teacher_only=True)
        episodes.append(("continuation", (0, 0, 0, -1), tail, {"K": cap, "t": t, "T": T}))
        return episodes, float(w.tokens[tail["s"]].sum())

    def _repeats(self, recipe: Recipe, rollout: Any) -> bool:
        s, a = rollout["s"], rollout["a"]
        if recipe.psi != "no_repetition" or len(s) < 3:
            return False
        same = (s[2:] == s[1:-1]) & (s[1:-1] == s[:-2]) & (a[2:] == a[1:-1]) & (a[1:-1] == a[:-2])
        return bool(same.any())

    def _accepted(self, recipe: Recipe, row: dict[str, Any], player: Any) -> bool:
        if recipe.phi != "success":
            return True
        episode = next(e for e in player.episodes if e["id"] == row["episode_id"])
        return bool(episode["end"] == self.world.S)


def judge(
    worlds: Any, number: int, seed: int, out: Path, *, reps: int, trainings: int
) -> list[dict[str, Any]]:
    """Rows of one world, one a budget."""
    world = worlds.draw(number, seed)
    pilot = worlds.Pilot(world, seed * 1000 + number)
    folder = out / world.name / "pilot"
    if not folder.exists():
        worlds.write(pilot, folder, "text")
    market, rows = Market(worlds, world, pilot), []
    for multiple in worlds.MULTIPLES:
        whole = multiple * pilot.price
        truth = []
        for budget, owned in ((whole - pilot.price, pilot.owned_success), (whole, None)):
            runs = [
                worlds.pipelines(world, budget, owned, [seed, number, multiple, k])[0] for k in range(reps)
            ]
            truth.append({o: float(np.mean([run[o] for run in runs])) for o in worlds.OPTIONS})
        best = max(max(table.values()) for table in truth)
        place, effort = out / world.name / f"rounds-{multiple}", Effort(trainings)
        state = spend(
            Rounds(open_run(folder), place, whole, market.buy, market.train, "world", effort=effort)
        )
        chosen = decision(state)
        rows.append(
            {
                "world": world.name,
                "family": world.family,
                "multiple": multiple,
                "regret": 100 * (best - market.J),
                "op-critical r=1": 100 * (best - truth[1]["op-critical", worlds.INF, 1.0]),
                "op-success r=1": 100 * (best - truth[1]["op-success", worlds.INF, 1.0]),
                "spent": (state["spent"] + pilot.price) / whole,
                "chosen": chosen["said"],
                "predicted": chosen["pass_at_1"],
                "J": market.J,
            }
        )
    return rows


def main(
    *,
    file: Path,
    out: Path,
    worlds: int = 24,
    seed: int = 0,
    reps: int = 6,  # whole pipelines behind every truth
    trainings: int = 16,  # before each decision
) -> None:
    """Play the worlds and print regrets."""
    played = worlds_of(file)
    rows: list[dict[str, Any]] = []
    for number in range(worlds):
        rows += judge(played, number, seed, out, reps=reps, trainings=trainings)
        for row in rows[-len(played.MULTIPLES) :]:
            print(json.dumps(row), file=sys.stderr, flush=True)
    for multiple in played.MULTIPLES:
        mine = [row for row in rows if row["multiple"] == multiple]
        for name in ("regret", "op-critical r=1", "op-success r=1", "spent"):
            values = np.array([row[name] for row in mine])
            se = values.std(ddof=1) / np.sqrt(len(values))
            print(f"{multiple:3} {name:18} {values.mean():6.2f} ± {se:.2f}")
