"""Summary of a validation: regret of planner and rules by family, quality of predictions, control."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from occupancy.record.rows import Row

PLAN = ["world", "multiple"]
PLANNERS = {"planner": "planner", "free": "planner, pilot not charged", "rounds": "rounds, all charged"}
QUARTER = "best of one run of each rule at B/4"
RANDOM = "a random candidate"
RIVALS = (QUARTER, RANDOM)
ALL = "all"


def frames(options: list[Row], plans: list[Row]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tidy tables: one row an option played, one row a plan made."""
    numbers = ["J", "se", "C_i", "predicted", "low", "high"]
    table = pd.DataFrame(options)
    return table.astype(dict.fromkeys(numbers, float)), pd.DataFrame(plans)


def regrets(options: pd.DataFrame) -> pd.DataFrame:
    """One row a world, multiple and rule: J of the best option played there minus the rule's."""
    best = options.groupby(PLAN)["J"].max().rename("best").reset_index()
    ruled = options[options["role"] != "candidate"]
    names = ruled["role"].map(PLANNERS | {"quarter": QUARTER}).fillna(ruled["arm"])
    drawn = options[options["role"] == "candidate"].groupby([*PLAN, "family"], sort=False)["J"].mean()
    rows = pd.concat([ruled.assign(rule=names), drawn.reset_index().assign(rule=RANDOM)]).merge(best, on=PLAN)
    rows["regret"] = rows["best"] - rows["J"]
    return rows[["world", "family", "multiple", "rule", "regret"]]


def by_plan(options: pd.DataFrame) -> pd.DataFrame:
    """One row a plan: fraction of its 90 % bands that hold the truth, Spearman's rank correlation with it,
    and mean error of prediction.

    NaN where a plan has no bands, or fewer than three candidates.
    """
    rows = []
    for keys, part in options[options["role"] == "candidate"].groupby([*PLAN, "family"], sort=False):
        known = part[part["J"].notna()]
        banded = known[known["low"].notna()]
        inside = banded["J"].between(banded["low"], banded["high"])
        rank = known["predicted"].rank().corr(known["J"].rank()) if len(known) > 2 else np.nan
        row = {"bands_hold": inside.mean() if len(banded) else np.nan, "rank": rank}
        row["error"] = (banded["predicted"] - banded["J"]).mean() if len(banded) else np.nan
        rows.append(dict(zip([*PLAN, "family"], keys, strict=True)) | row)
    return pd.DataFrame(rows)


def summary(options: pd.DataFrame, plans: pd.DataFrame) -> dict[str, Any]:
    """The whole validation as plain values; means with standard errors over worlds, families equal."""
    regret, quality = regrets(options), by_plan(options)
    out: dict[str, Any] = {
        "worlds": int(plans["world"].nunique()),
        "truth_se_max": float(options["se"].max()),
        "unspendable": int(options["J"].isna().sum()),
        "budgets": {},
    }
    for multiple, made in plans.groupby("multiple"):
        own = quality[quality["multiple"] == multiple]
        mine = regret[regret["multiple"] == multiple]
        rules = ~mine["rule"].isin((*PLANNERS.values(), *RIVALS))
        fixed = mine[rules].groupby("rule", sort=False)["regret"].mean()
        out["budgets"][str(multiple)] = {
            "regret": {
                str(rule): _families(part, "regret") for rule, part in mine.groupby("rule", sort=False)
            },
            "best_fixed_rule": str(fixed.idxmin()),
            "bands_hold": _families(own, "bands_hold"),
            "rank": _families(own, "rank"),
            "error": _families(own, "error"),
            "shuffled_no_preference": float((made["shuffled_status"] == "no_preference").mean()),
            "statuses": {str(k): int(n) for k, n in made["status"].value_counts().items()},
        }
    return out


def _families(table: pd.DataFrame, column: str) -> dict[str, Any]:
    parts = {ALL: table, **{str(name): part for name, part in table.groupby("family", sort=False)}}
    return {name: _mean(part[column].dropna().to_numpy(float)) for name, part in parts.items()}


def _mean(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    n = len(values)
    return {
        "mean": float(values.mean()) if n else None,
        "se": float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else None,
        "n": n,
    }
