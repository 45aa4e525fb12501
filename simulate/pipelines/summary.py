"""Summary of a sweep: means with errors over seeds, and which recipes may be as good as the best.

Pipelines of one seed share their draws, so recipes are compared by paired differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

BUDGET = ["world", "matched_on", "rounds", "budget"]
RECIPE = ["recipe", "K", "r"]


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each recipe, K, r and budget: mean and standard error of J, and mean costs in tokens."""
    grouped = frame.groupby([*BUDGET, *RECIPE], sort=False)
    out = grouped["J"].agg(J="mean", se="sem", seeds="size")
    costs = grouped[["C_i", "C_tr", "r_tokens", "r_tasks"]].mean()
    spread = grouped[["C_i", "C_tr"]].agg(["min", "max"])
    spread.columns = ["C_i_min", "C_i_max", "C_tr_min", "C_tr_max"]
    table: pd.DataFrame = out.join(costs).join(spread).reset_index()
    return table


def best(frame: pd.DataFrame) -> pd.DataFrame:
    """For each budget the best recipe, and in `not_worse` those within two paired standard errors of it.

    `best_se` holds the noise of the choice itself: the best of many noisy means is biased upwards, so rank
    with as many seeds as the differences ask for.
    """
    import pandas as pd

    rows = []
    keys: Any
    for keys, part in frame.groupby(BUDGET, sort=False):
        table = part.pivot_table(index="seed", columns=RECIPE, values="J")
        winner: Any = table.mean().idxmax()
        gaps = table.sub(table[winner], axis=0)
        error = gaps.sem().fillna(0.0)
        near: Any = table.columns[(gaps.mean() + 2 * error >= 0).to_numpy()]
        rows.append(
            {
                **dict(zip(BUDGET, keys, strict=True)),
                **dict(zip(RECIPE, winner, strict=True)),
                "J": float(table[winner].mean()),
                "best_se": float(table[winner].sem()) if len(table) > 1 else np.nan,
                "not_worse": [{"recipe": n, "K": K, "r": float(r)} for n, K, r in near],
            }
        )
    return pd.DataFrame(rows)


def by_K(frame: pd.DataFrame) -> pd.DataFrame:
    """For each budget and K of op-short: J at the r > 0 that is best for it, with its standard error."""
    table = means(frame[(frame["recipe"] == "op-short") & (frame["r"] > 0)])
    return table.loc[table.groupby([*BUDGET, "K"], sort=False)["J"].idxmax()].reset_index(drop=True)
