"""How well one training of each recipe at a part of a budget ranks the recipes at the whole budget.

    python -m benchmarks feature_worlds_ranking --file FILE.py --worlds 12 --seed 7

FILE.py is as for `benchmarks.planner_prior.generate`. In each world every option is played once at 1/8, 1/4
and 1/2 of a budget and evaluated on 400 episodes, and `--reps` times at the whole budget, exactly. For each
part the share of pairs in the right order, Spearman's correlation and the regret of the best measured, in
points, are printed, with errors over worlds. `exact`: the same without evaluation noise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planner_prior.generate import worlds_of

PARTS = (8, 4, 2)
EPISODES = 400


def ranked(small: np.ndarray, true: np.ndarray) -> tuple[float, float, float]:
    """Pair accuracy, rank correlation, and regret in points of choosing by `small` [O] where `true` holds."""
    first, second = np.triu_indices(len(true), 1)
    apart = (small[first] - small[second]) * (true[first] - true[second])
    pairs = float((apart > 0).mean() + 0.5 * (apart == 0).mean())
    order = [np.argsort(np.argsort(values)) for values in (small, true)]
    return pairs, float(np.corrcoef(*order)[0, 1]), 100 * float(true.max() - true[small.argmax()])


def measure(worlds: Any, number: int, seed: int, reps: int) -> dict[tuple[int, int, str], tuple[float, ...]]:
    """Of one world, by multiple of the pilot's cost, part of the budget, and noise."""
    world = worlds.draw(number, seed)
    price = worlds.Pilot(world, seed * 1000 + number).price
    rng, found = np.random.default_rng([seed, number]), {}
    for multiple in worlds.MULTIPLES:
        table = lambda budget, k: worlds.pipelines(world, budget, None, [seed, number, multiple, k])[0]  # noqa: B023, E731
        every = [table(multiple * price, k) for k in range(reps)]
        true = np.array([np.mean([one[o] for one in every]) for o in worlds.OPTIONS])
        for part in PARTS:
            small = table(multiple * price / part, 100 + part)
            exact = np.array([small[o] for o in worlds.OPTIONS])
            found[multiple, part, "exact"] = ranked(exact, true)
            found[multiple, part, "400 episodes"] = ranked(rng.binomial(EPISODES, exact) / EPISODES, true)
    return found


def main(file: Path, worlds: int = 12, seed: int = 0, reps: int = 3) -> None:
    """Play the worlds and print the table."""
    played = worlds_of(file)
    rows = [measure(played, number, seed, reps) for number in range(worlds)]
    print("| budget | part | measured on | pairs | rank correlation | regret |\n|---|---|---|---|---|---|")
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        mean, se = values.mean(0), values.std(0, ddof=1) / np.sqrt(len(values))
        cells = (f"{m:.2f} ± {e:.2f}" for m, e in zip(mean, se, strict=True))
        print(f"| {key[0]} | 1/{key[1]} | {key[2]} | {' | '.join(cells)} |")
